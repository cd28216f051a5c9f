/** Product pages with JSON-LD (schema.org Product with offers), found by workerd's HTMLRewriter. */
import { parsePrice } from '../prices/money.ts';
import { parseJson } from './json.ts';
import {
  cleanText,
  type FoundOffer,
  readAvailability,
  readCondition,
  type Source,
  validGtin,
  webUrl,
} from './source.ts';

const MOST_NODES = 10_000;
const DEEPEST = 20;

type Node = Record<string, unknown>;

export async function parseJsonLd(html: string, source: Source, pageUrl: string): Promise<FoundOffer[]> {
  const scripts = await jsonLdScripts(html);
  const budget = { nodes: MOST_NODES };
  return scripts.flatMap((script) => {
    try {
      return products(parseJson(script), budget, 0).flatMap((product) => offersOf(product, source, pageUrl));
    } catch {
      // One broken block of a page says nothing about the others.
      return [];
    }
  });
}

async function jsonLdScripts(html: string): Promise<string[]> {
  const scripts: string[] = [];
  let current = '';
  const rewriter = new HTMLRewriter().on('script[type="application/ld+json"]', {
    element() {
      current = '';
    },
    text({ text, lastInTextNode }: { text: string; lastInTextNode: boolean }) {
      current += text;
      if (lastInTextNode) scripts.push(current);
    },
  });
  await rewriter.transform(new Response(html)).text();
  return scripts;
}

/** workerd's own; only what is used. */
declare class HTMLRewriter {
  on(
    selector: string,
    handlers: { element(): void; text(chunk: { text: string; lastInTextNode: boolean }): void },
  ): HTMLRewriter;
  transform(response: Response): Response;
}

function products(value: unknown, budget: { nodes: number }, depth: number): Node[] {
  if (typeof value !== 'object' || value === null || depth > DEEPEST || budget.nodes-- <= 0) return [];
  if (Array.isArray(value)) return value.flatMap((one) => products(one, budget, depth + 1));
  const node = value as Node;
  if (isType(node, 'Product')) return [node];
  return ['@graph', 'mainEntity', 'hasVariant', 'itemListElement', 'item'].flatMap((key) =>
    products(node[key], budget, depth + 1),
  );
}

function offersOf(product: Node, source: Source, pageUrl: string): FoundOffer[] {
  const list = Array.isArray(product.offers) ? product.offers : [product.offers];
  return list.flatMap((value): FoundOffer[] => {
    if (typeof value !== 'object' || value === null) return [];
    const offer = value as Node;
    const specification = (
      Array.isArray(offer.priceSpecification) ? offer.priceSpecification[0] : offer.priceSpecification
    ) as Node | undefined;
    const amount = text(offer.price) ?? text(offer.lowPrice) ?? text(specification?.price);
    const currency = text(offer.priceCurrency) ?? text(specification?.priceCurrency) ?? source.currency;
    const price = amount && currency ? parsePrice(amount, currency) : undefined;
    const title = text(product.name);
    if (!price || !title) return [];
    const gtin = ['gtin', 'gtin14', 'gtin13', 'gtin12', 'gtin8']
      .map((key) => validGtin(text(product[key]) ?? text(offer[key])))
      .find(Boolean);
    const sku = text(offer.sku) ?? text(product.sku);
    const category = text(product.category);
    const seller = offer.seller as Node | undefined;
    return [
      {
        merchant: cleanText(text(seller?.name) ?? source.merchant),
        title: cleanText(title),
        url: webUrl(text(offer.url) ?? text(product.url), pageUrl) ?? pageUrl,
        ...(gtin ? { gtin } : {}),
        ...(sku ? { sku: cleanText(sku) } : {}),
        ...(category ? { category: cleanText(category) } : {}),
        variant: cleanText(text(product.color) ?? ''),
        condition: readCondition(text(offer.itemCondition)),
        price,
        availability: readAvailability(text(offer.availability)),
      },
    ];
  });
}

function isType(node: Node, type: string): boolean {
  const types = Array.isArray(node['@type']) ? node['@type'] : [node['@type']];
  return types.some(
    (one) => one === type || one === `https://schema.org/${type}` || one === `http://schema.org/${type}`,
  );
}

function text(value: unknown): string | undefined {
  return typeof value === 'string' && value.trim() !== ''
    ? value
    : typeof value === 'number'
      ? String(value)
      : undefined;
}
