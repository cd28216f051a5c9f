/** Shopify's public /products.json: every variant is an offer. Prices come without a currency; the source names it. */
import * as z from 'zod/mini';
import { parsePrice } from '../prices/money.ts';
import { parseJson } from './json.ts';
import { cleanText, type FoundOffer, type Source, validGtin, webUrl } from './source.ts';

/** Checked one by one: the report on a document that is wrong throughout would be larger than it. */
const catalog = z.object({ products: z.array(z.unknown()) });
const catalogProduct = z.object({
  handle: z.string(),
  title: z.string(),
  vendor: z.optional(z.nullable(z.string())),
  product_type: z.optional(z.nullable(z.string())),
  variants: z.array(
    z.object({
      id: z.union([z.number(), z.string()]),
      title: z.string(),
      price: z.union([z.string(), z.number()]),
      compare_at_price: z.optional(z.nullable(z.union([z.string(), z.number()]))),
      available: z.optional(z.nullable(z.boolean())),
      sku: z.optional(z.nullable(z.string())),
      barcode: z.optional(z.nullable(z.string())),
    }),
  ),
});

/** @throws Error where it is no such catalog */
export function parseShopify(text: string, source: Source): FoundOffer[] {
  const { products } = catalog.parse(parseJson(text));
  return products.flatMap((one) => {
    const product = catalogProduct.parse(one);
    return product.variants.flatMap((variant): FoundOffer[] => {
      const price = parsePrice(String(variant.price), source.currency ?? '');
      const url = webUrl(`products/${encodeURIComponent(product.handle)}`, new URL('./', source.url).href);
      if (!price || !url) return [];
      const list =
        variant.compare_at_price == null ? undefined : parsePrice(String(variant.compare_at_price), price.currency);
      const gtin = validGtin(variant.barcode ?? undefined);
      return [
        {
          merchant: cleanText(source.merchant),
          title: cleanText(product.title),
          url,
          ...(gtin ? { gtin } : {}),
          sku: cleanText(variant.sku || String(variant.id)),
          ...(product.product_type ? { category: cleanText(product.product_type) } : {}),
          variant: variant.title === 'Default Title' ? '' : cleanText(variant.title),
          condition: 'new',
          price,
          ...(list && list.minor > price.minor ? { listMinor: list.minor } : {}),
          availability: variant.available == null ? 'unknown' : variant.available ? 'in_stock' : 'out_of_stock',
        },
      ];
    });
  });
}
