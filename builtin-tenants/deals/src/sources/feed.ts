/** RSS and Atom as pointers only: the addresses of product pages, which are then read for their JSON-LD. */
import { webUrl } from './source.ts';
import { readElements } from './xml.ts';

/** Pages of one feed that are read in one go. */
export const MOST_PAGES = 20;

/** @throws Error where it is no feed, or hostile */
export function parsePointers(xml: string, feedUrl: string): string[] {
  const own = new URL(feedUrl).host;
  const urls = new Set<string>();
  let root: string | undefined;
  let itemDepth: number | undefined;
  const found = (link: string | undefined) => {
    const url = webUrl(link, feedUrl);
    // A feed speaks for its own shop.
    if (url && new URL(url).host === own && urls.size < MOST_PAGES) urls.add(url);
  };
  const pieces = readElements(xml, {
    open(name, depth, attributes) {
      root ??= name;
      if (name === 'item' || name === 'entry') itemDepth = depth;
      // Atom's link is an attribute; the others of an entry lead elsewhere.
      else if (name === 'link' && itemDepth !== undefined && depth === itemDepth + 1 && attributes.href) {
        if ((attributes.rel ?? 'alternate') === 'alternate') found(attributes.href);
      }
    },
    close(name, text, depth) {
      if (depth === itemDepth) itemDepth = undefined;
      else if (name === 'link' && itemDepth !== undefined && depth === itemDepth + 1 && text !== '') found(text);
    },
  });
  for (const _ of pieces);
  if (root === undefined || !['rss', 'feed', 'rdf:RDF'].includes(root))
    throw new Error('the document is not an RSS or Atom feed');
  return [...urls];
}
