/** RSS and Atom as pointers only: the addresses of product pages, which are then read for their JSON-LD. */
import { parseFeed as parse } from 'feedsmith';
import { webUrl } from './source.ts';
import { readElements } from './xml.ts';

/** Pages of one feed that are read in one go. */
export const MOST_PAGES = 20;

/** @throws Error where it is no feed, or hostile */
export function parsePointers(xml: string, feedUrl: string): string[] {
  // The same rules as for every XML, before a more lenient parser sees it.
  readElements(xml, { close: () => {} });
  const { feed } = parse(xml) as { feed: { items?: { link?: string }[]; entries?: { links?: { href?: string }[] }[] } };
  const links = [
    ...(feed.items ?? []).map(({ link }) => link),
    ...(feed.entries ?? []).map(({ links: list }) => list?.[0]?.href),
  ];
  const own = new URL(feedUrl).host;
  const urls = links.flatMap((link) => {
    const url = webUrl(link, feedUrl);
    // A feed speaks for its own shop.
    return url && new URL(url).host === own ? [url] : [];
  });
  return [...new Set(urls)].slice(0, MOST_PAGES);
}
