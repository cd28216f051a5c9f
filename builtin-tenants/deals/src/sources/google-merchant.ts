/** Google Merchant feeds in XML (RSS 2.0 or Atom with the g: namespace): support.google.com/merchants/answer/7052112. */
import { parseAmountWithCurrency } from '../prices/money.ts';
import {
  cleanText,
  type FoundOffer,
  MOST_OFFERS,
  readAvailability,
  readCondition,
  type Source,
  validGtin,
  webUrl,
} from './source.ts';
import { HostileXml, readElements } from './xml.ts';

/** Fields of one product that are looked at. */
const MOST_FIELDS = 256;

/**
 * A piece of the document at a time; nothing of it is kept.
 * @throws Error where it is not XML, or hostile, or has too many products
 */
export function* parseGoogleMerchant(xml: string, source: Source, now = Date.now()): Generator<FoundOffer[]> {
  let found: FoundOffer[] = [];
  let items = 0;
  let fields = 0;
  let item: Record<string, string> | undefined;
  let itemDepth = 0;
  const pieces = readElements(xml, {
    open(name, depth, attributes) {
      if (name === 'item' || name === 'entry') {
        item = {};
        fields = 0;
        if (++items > MOST_OFFERS)
          throw new HostileXml(`the document has more than ${MOST_OFFERS} products; name its parts as sources`);
        itemDepth = depth;
      }
      // Atom's link is an attribute.
      if (item && name === 'link' && attributes.href) item.link = attributes.href;
    },
    close(name, text, depth) {
      if (name === 'item' || name === 'entry') {
        const offer = item && merchantItem(item, source, now);
        if (offer) found.push(offer);
        item = undefined;
        // Groups such as g:shipping have a g:price of their own.
      } else if (item && depth === itemDepth + 1 && text !== '' && ++fields <= MOST_FIELDS)
        item[name.replace(/^g:/, '')] ??= text;
    },
  });
  for (const _ of pieces) {
    yield found;
    found = [];
  }
  yield found;
}

/** The fields of one product by their names in the specification; CSV feeds use the same names. */
export function merchantItem(item: Record<string, string>, source: Source, now: number): FoundOffer | undefined {
  const regular = item.price ? parseAmountWithCurrency(withCurrency(item.price, source)) : undefined;
  const [from, to] = (item.sale_price_effective_date ?? '').split('/').map((date) => Date.parse(date.trim()));
  // What is no such text bounds nothing.
  const isOnSale = item.sale_price && !(from !== undefined && now < from) && !(to !== undefined && now > to);
  const turn = item.sale_price ? [from, to].find((at) => at !== undefined && at >= now) : undefined;
  const sale = isOnSale ? parseAmountWithCurrency(withCurrency(item.sale_price ?? '', source)) : undefined;
  const price = sale ?? regular;
  const url = webUrl(item.link);
  if (!price || !url || !item.title) return undefined;
  const gtin = validGtin(item.gtin);
  const category = item.google_product_category ?? item.product_type;
  return {
    merchant: cleanText(item.brand_store ?? source.merchant),
    title: cleanText(item.title),
    url,
    ...(gtin ? { gtin } : {}),
    ...(item.id ? { sku: cleanText(item.id) } : {}),
    ...(category ? { category: cleanText(category) } : {}),
    variant: cleanText([item.color, item.size, item.material].filter(Boolean).join(' / ')),
    condition: readCondition(item.condition),
    price,
    ...(sale && regular && regular.currency === sale.currency && regular.minor > sale.minor
      ? { listMinor: regular.minor }
      : {}),
    availability: readAvailability(item.availability),
    ...(turn === undefined ? {} : { holdsUntil: turn }),
  };
}

function withCurrency(text: string, { currency }: Source): string {
  return /[A-Za-z]{3}/.test(text) || !currency ? text : `${text.trim()} ${currency}`;
}
