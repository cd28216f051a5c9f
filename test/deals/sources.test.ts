/** What strangers send: feeds are read, and hostile ones refused without harm. */
import { describe, expect, test } from 'vitest';
import { parseCsv as csvPieces } from '../../builtin-tenants/deals/src/sources/csv.ts';
import { parsePointers } from '../../builtin-tenants/deals/src/sources/feed.ts';
import { decode } from '../../builtin-tenants/deals/src/sources/fetch-page.ts';
import { parseGoogleMerchant as merchantPieces } from '../../builtin-tenants/deals/src/sources/google-merchant.ts';
import { parseJson } from '../../builtin-tenants/deals/src/sources/json.ts';
import { parseShopify } from '../../builtin-tenants/deals/src/sources/shopify.ts';
import {
  cleanText,
  offerKey,
  parseSources,
  readAvailability,
  validGtin,
  webUrl,
} from '../../builtin-tenants/deals/src/sources/source.ts';
import { isPrivate } from '../../builtin-tenants/kit/webhooks.ts';
import { SOURCE } from './support/parts.ts';

const item = (fields: string) => `<item><title>Lamp</title><link>https://shop.example/lamp</link>${fields}</item>`;
const feed = (...items: string[]) =>
  `<?xml version="1.0"?><rss version="2.0" xmlns:g="http://base.google.com/ns/1.0"><channel>${items.join('')}</channel></rss>`;

const parseCsv = (...given: Parameters<typeof csvPieces>) => [...csvPieces(...given)].flat();
const parseGoogleMerchant = (...given: Parameters<typeof merchantPieces>) => [...merchantPieces(...given)].flat();

describe('a Google Merchant feed', () => {
  test('in RSS: price, sale price, identifiers and stock', () => {
    const [offer, ...more] = parseGoogleMerchant(
      feed(
        item(
          '<g:id>L1</g:id><g:price>45.00 EUR</g:price><g:sale_price>36.90 EUR</g:sale_price><g:gtin>4012345678901</g:gtin>' +
            '<g:availability>in_stock</g:availability><g:condition>refurbished</g:condition><g:color>red</g:color><g:product_type>Lamps</g:product_type>',
        ),
      ),
      SOURCE,
    );
    expect(more).toEqual([]);
    expect(offer).toEqual({
      merchant: 'The Shop',
      title: 'Lamp',
      url: 'https://shop.example/lamp',
      gtin: '4012345678901',
      sku: 'L1',
      category: 'Lamps',
      variant: 'red',
      condition: 'refurbished',
      price: { minor: 3_690, currency: 'EUR', exponent: 2 },
      listMinor: 4_500,
      availability: 'in_stock',
    });
  });

  test('on sale only between the dates of the sale', () => {
    const prices = '<g:price>45.00 EUR</g:price><g:sale_price>36.90 EUR</g:sale_price>';
    const dates = '2026-11-20T00:00+0100/2026-11-30T23:59+0100';
    const xml = feed(item(`${prices}<g:sale_price_effective_date>${dates}</g:sale_price_effective_date>`));
    const priceAt = (date: string) => parseGoogleMerchant(xml, SOURCE, Date.parse(date))[0]?.price.minor;
    expect(priceAt('2026-11-19T22:59:00Z')).toBe(4_500);
    expect(priceAt('2026-11-19T23:00:00Z')).toBe(3_690);
    expect(priceAt('2026-11-30T22:59:00Z')).toBe(3_690);
    expect(priceAt('2026-11-30T23:00:00Z')).toBe(4_500);
  });

  test('whose shipping, loyalty programme or instalment comes before the price, which is the product’s own', () => {
    const parts =
      '<g:shipping><g:country>DE</g:country><g:price>4.95 EUR</g:price></g:shipping>' +
      '<g:loyalty_program><g:price>250.00 EUR</g:price></g:loyalty_program>';
    expect(parseGoogleMerchant(feed(item(`${parts}<g:price>299.00 EUR</g:price>`)), SOURCE)[0]?.price.minor).toBe(
      29_900,
    );
    expect(parseGoogleMerchant(feed(item(parts)), SOURCE)).toEqual([]);
  });

  test('in Atom, where the link is an attribute', () => {
    const atom = `<feed xmlns="http://www.w3.org/2005/Atom" xmlns:g="http://base.google.com/ns/1.0"><entry><title>Lamp</title><link href="https://shop.example/a"/><g:price>1980 JPY</g:price></entry></feed>`;
    expect(parseGoogleMerchant(atom, SOURCE)).toEqual([
      expect.objectContaining({
        url: 'https://shop.example/a',
        price: { minor: 1_980, currency: 'JPY', exponent: 0 },
        availability: 'unknown',
      }),
    ]);
  });

  test('keeps what is good of a feed with faulty items', () => {
    const offers = parseGoogleMerchant(
      feed(
        item('<g:price>free</g:price>'),
        item('<g:price>12.345 EUR</g:price>'),
        '<item><title>No link</title><g:price>1.00 EUR</g:price></item>',
        '<item><title>Bad link</title><link>javascript:alert(1)</link><g:price>1.00 EUR</g:price></item>',
        item('<g:price>1.234 KWD</g:price>'),
      ),
      SOURCE,
    );
    expect(offers.map(({ price }) => price)).toEqual([{ minor: 1_234, currency: 'KWD', exponent: 3 }]);
  });

  test('a script in a title stays text', () => {
    const [offer] = parseGoogleMerchant(
      feed(
        '<item><title><![CDATA[<script>alert(1)</script>\u202eevil]]></title><link>https://shop.example/x</link><g:price>1.00 EUR</g:price></item>',
      ),
      SOURCE,
    );
    expect(offer?.title).toBe('<script>alert(1)</script> evil');
  });
});

describe('hostile XML is refused', () => {
  const bomb = `<?xml version="1.0"?><!DOCTYPE lolz [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;&a;&a;">]><rss>&b;</rss>`;
  test.each([
    ['an entity bomb', bomb, 'DOCTYPE'],
    ['a DOCTYPE that reads a file', '<!DOCTYPE r [<!ENTITY x SYSTEM "file:///etc/passwd">]><r>&x;</r>', 'DOCTYPE'],
    ['an entity that nobody declared', feed(item('&nope;')), 'not XML'],
    ['deep nesting', '<a>'.repeat(100_000), 'nested deeper'],
    ['an unclosed document', '<rss><channel>', 'not XML'],
    ['no XML at all', 'hello', 'not XML'],
  ])('%s', (_name, xml, why) => {
    expect(() => parseGoogleMerchant(xml, SOURCE)).toThrow(why);
    expect(() => parsePointers(xml, 'https://shop.example/feed')).toThrow(why);
  });

  test('a large bomb is refused at its start', () => {
    expect(() => parseGoogleMerchant(`${bomb}${'x'.repeat(10_000_000)}`, SOURCE)).toThrow('DOCTYPE');
  });
});

describe('a CSV feed', () => {
  test.each([
    ['commas', 'id,title,link,price\nL1,"Lamp, red",https://shop.example/l,12.50 EUR\n'],
    ['tabs and names as in Google’s', 'g:id\tTitle\tlink\tprice\nL1\tLamp, red\thttps://shop.example/l\t12.50 EUR\n'],
    [
      'semicolons and a mark at the start',
      '\ufeffid;title;link;price\r\nL1;Lamp, red;https://shop.example/l;12.50\r\n',
    ],
  ])('with %s', (_name, text) => {
    expect(parseCsv(text, SOURCE)).toEqual([
      expect.objectContaining({ sku: 'L1', title: 'Lamp, red', price: { minor: 1_250, currency: 'EUR', exponent: 2 } }),
    ]);
  });

  test('with columns whose names have spaces, as they stand in the header', () => {
    const text = 'Product Name,Deep Link,Price\nLamp,https://shop.example/lamp,5.00\n';
    const columns = { title: 'Product Name', link: 'Deep Link' };
    expect(parseCsv(text, { ...SOURCE, columns })).toEqual([expect.objectContaining({ title: 'Lamp' })]);
  });

  test('with columns of its own names', () => {
    const text = 'artikel,name,adresse,preis\n7,Lamp,https://shop.example/7,9.90\n';
    const columns = { id: 'artikel', title: 'name', link: 'adresse', price: 'preis' };
    expect(parseCsv(text, { ...SOURCE, columns })).toEqual([expect.objectContaining({ sku: '7', title: 'Lamp' })]);
  });

  test('a column named __proto__ changes nothing', () => {
    parseCsv('__proto__,title,link,price\npolluted,Lamp,https://shop.example/l,1.00\n', SOURCE);
    expect(({} as Record<string, unknown>).polluted).toBeUndefined();
    expect(Object.prototype.toString()).toBe('[object Object]');
  });
});

describe('Shopify’s catalog', () => {
  const catalog = (variant: object) =>
    JSON.stringify({
      products: [
        { handle: 'lamp & co', title: 'Lamp', variants: [{ id: 1, title: 'Red', price: '12.50', ...variant }] },
      ],
    });
  const shop = { ...SOURCE, url: 'https://shop.example/products.json' };

  test('every variant is an offer in the currency of the source', () => {
    const [offer] = parseShopify(catalog({ compare_at_price: '20.00', available: true, sku: 'R' }), shop);
    expect(offer).toMatchObject({
      url: 'https://shop.example/products/lamp%20%26%20co',
      variant: 'Red',
      sku: 'R',
      price: { minor: 1_250, currency: 'EUR', exponent: 2 },
      listMinor: 2_000,
      availability: 'in_stock',
    });
  });

  test('without a currency there is no price', () => {
    const { currency: _, ...none } = shop;
    expect(parseShopify(catalog({}), none)).toEqual([]);
  });

  test.each(['{}', '[]', 'null', '{"products":[{}]}', `${'['.repeat(50_000)}`])('%.20s is no catalog', (text) => {
    expect(() => parseShopify(text, shop)).toThrow();
  });
});

describe('RSS and Atom as pointers', () => {
  test('lead to pages of their own shop alone, each once', () => {
    const links = [
      '/a',
      'https://shop.example/b',
      'https://other.example/c',
      'http://127.0.0.1/',
      '/a',
      'javascript:x',
    ];
    const rss = `<rss version="2.0"><channel><title>x</title>${links.map((link) => `<item><title>t</title><link>${link}</link></item>`).join('')}</channel></rss>`;
    expect(parsePointers(rss, 'https://shop.example/feed')).toEqual([
      'https://shop.example/a',
      'https://shop.example/b',
    ]);
  });

  test('in Atom', () => {
    const atom = `<feed xmlns="http://www.w3.org/2005/Atom"><title>x</title><id>1</id><updated>2026-01-01T00:00:00Z</updated><entry><title>t</title><id>2</id><updated>2026-01-01T00:00:00Z</updated><link href="https://shop.example/p"/></entry></feed>`;
    expect(parsePointers(atom, 'https://shop.example/feed')).toEqual(['https://shop.example/p']);
  });
});

describe('the text of a page', () => {
  const bytes = (text: string, encoding: BufferEncoding = 'utf8') => new Uint8Array(Buffer.from(text, encoding));
  const latin = '<?xml version="1.0" encoding="iso-8859-1"?><t>Café</t>';

  test('is decoded by its mark before its header before its own declaration', () => {
    expect(decode(bytes(latin, 'latin1'), 'text/xml')).toContain('Café');
    expect(decode(bytes(latin), 'text/xml; charset=utf-8')).toContain('Café');
    expect(decode(bytes(`\ufeff${latin}`), 'text/xml; charset=iso-8859-1')).toContain('Café');
    expect(decode(bytes('\ufeff<t>Café</t>', 'utf16le'), 'text/xml; charset=utf-8')).toContain('Café');
    expect(decode(bytes('<meta charset="windows-1252">Caf\u00e9', 'latin1'), 'text/html')).toContain('Café');
  });

  test('of a charset that nobody knows is UTF-8', () => {
    expect(decode(bytes('Café'), 'text/html; charset=klingon')).toBe('Café');
  });
});

describe('single fields', () => {
  test.each(['4012345678901', '96385074', '012345678905', '10012345678902'])('GTIN %s is right', (gtin) => {
    expect(validGtin(gtin)).toBe(gtin);
  });
  test.each(['4012345678902', '123', '', undefined, '40123456789O1'])('GTIN %s is not', (gtin) => {
    expect(validGtin(gtin)).toBeUndefined();
  });

  test('stock in the words of feeds and of schema.org', () => {
    expect(['in stock', 'https://schema.org/InStock', 'in_stock'].map(readAvailability)).toEqual(
      Array(3).fill('in_stock'),
    );
    expect(readAvailability('http://schema.org/SoldOut')).toBe('out_of_stock');
    expect(readAvailability('preorder')).toBe('preorder');
    expect(readAvailability('maybe')).toBe('unknown');
  });

  test('text loses control characters and what turns it around, and is bounded', () => {
    expect(cleanText('a\u0000b\n\tc\u202ed')).toBe('a b c d');
    expect(cleanText('x'.repeat(1_000))).toHaveLength(300);
  });

  test.each(['javascript:alert(1)', 'data:text/html,x', 'file:///etc/passwd', 'nonsense', ''])(
    '%s is no link',
    (url) => {
      expect(webUrl(url)).toBeUndefined();
    },
  );

  test('an offer is the same for tracking parameters, and another for its variant, state, region or currency', () => {
    const offer = {
      merchant: 'Shop',
      title: 'Lamp',
      url: 'https://shop.example/l?utm_source=x&v=1#top',
      variant: 'red',
      condition: 'new' as const,
      price: { minor: 1, currency: 'EUR', exponent: 2 },
      availability: 'unknown' as const,
    };
    const key = offerKey(offer, 'DE');
    expect(offerKey({ ...offer, url: 'https://shop.example/l?v=1', title: 'Other' }, 'DE')).toBe(key);
    const others = [
      offerKey({ ...offer, variant: 'blue' }, 'DE'),
      offerKey({ ...offer, condition: 'used' }, 'DE'),
      offerKey({ ...offer, price: { ...offer.price, currency: 'CHF' } }, 'DE'),
      offerKey(offer, 'AT'),
      offerKey({ ...offer, sku: '1' }, 'DE'),
    ];
    expect(new Set([key, ...others]).size).toBe(6);
  });
});

describe('the operator’s sources', () => {
  test('are read', () => {
    expect(parseSources(JSON.stringify([SOURCE]))).toEqual([SOURCE]);
  });
  test.each([
    ['an unknown kind', [{ ...SOURCE, kind: 'magic' }]],
    ['no legal basis', [{ ...SOURCE, legal_basis: '' }]],
    ['an unknown setting', [{ ...SOURCE, extra: 1 }]],
    ['one id twice', [SOURCE, SOURCE]],
    ['too short an interval', [{ ...SOURCE, every_s: 10 }]],
    ['no list', SOURCE],
  ])('with %s are refused', (_name, sources) => {
    expect(() => parseSources(JSON.stringify(sources))).toThrow('SOURCES');
  });
});

describe('documents that would not fit', () => {
  const table = (columns: number, rows: number) =>
    `${Array.from({ length: columns }, (_, at) => `c${at}`).join(',')}\n${`${'x,'.repeat(columns - 1)}x\n`.repeat(rows)}`;

  test.each([
    [
      'more rows than are noted',
      `id,title,link,price\n${'1,Lamp,https://shop.example/l,1.00\n'.repeat(50_001)}`,
      'rows',
    ],
    ['9,000 columns', table(9_000, 200), 'columns'],
    ['a row without an end', `id,title,link,price\n1,${'x'.repeat(200_000)}`, 'longer'],
    ['a quote without an end', 'id,title,link,price\n1,"Lamp', 'within quotes'],
    ['quotes without an end', `id,title,link,price\n1,"${'""'.repeat(200_000)}`, 'longer'],
  ])('a table with %s is refused', (_what, text, why) => {
    expect(() => parseCsv(text, SOURCE)).toThrow(why);
  });

  test('cells may hold quotes, delimiters, and ends of lines', () => {
    const text =
      '"id";title;link;price\r\n1;"A ""big""; red\r\nlamp" ;https://shop.example/l;"1.50 EUR"\r\n\r\n2;6" pipe;https://shop.example/p;2.00 EUR';
    expect(parseCsv(text, SOURCE).map(({ sku, title }) => [sku, title])).toEqual([
      ['1', 'A "big"; red lamp'],
      ['2', '6" pipe'],
    ]);
  });

  test('an element with too much text, or too many attributes, is refused', () => {
    expect(() => parseGoogleMerchant(`<rss><a>${'x'.repeat(400_000)}</a></rss>`, SOURCE)).toThrow('text');
    const attributes = Array.from({ length: 9_000 }, (_, at) => `a${at}=""`).join(' ');
    expect(() => parseGoogleMerchant(`<rss ${attributes}/>`, SOURCE)).toThrow('attributes');
    const items = '<item><title>a</title></item>'.repeat(50_001);
    expect(() => parseGoogleMerchant(`<rss>${items}</rss>`, SOURCE)).toThrow('products');
  });

  test.each([
    ['100,000 levels', '['.repeat(100_000), 'deeper'],
    ['a million values', `[${'{},'.repeat(1_000_000)}{}]`, 'values'],
    ['a string without an end', `["${'\\"'.repeat(1_000_000)}`, 'JSON'],
    ['a string that ends with a backslash', `["${'\\"'.repeat(1_000_000)}\\`, 'JSON'],
  ])('JSON with %s is refused', (_what, text, why) => {
    expect(() => parseJson(text)).toThrow(why);
  });

  test('brackets and commas in strings of JSON do not count', () => {
    const value = { text: `${'[{,'.repeat(200_000)}"\\` };
    expect(parseJson(JSON.stringify(value))).toEqual(value);
  });
});

describe('an address that strangers ask for', () => {
  const sources = [{ url: 'http://10.0.0.5:8080/feed' }, { url: 'https://shop.test/feed' }];

  test.each([
    'http://10.0.0.5:8080/admin',
    'http://0xa.5:8080/',
    'https://SHOP.test/',
    'https://shop.test.:443/x',
    'http://engine.internal/',
    'http://engine.INTERNAL.:99/',
  ])('is not %s: the operator may have opened it for the sources alone', (url) => {
    expect(isPrivate(url, sources)).toBe(true);
  });

  test.each(['http://10.0.0.5/', 'http://shop.test/', 'https://hook.test/', 'https://internal.test/'])(
    'may be %s',
    (url) => {
      expect(isPrivate(url, sources)).toBe(false);
    },
  );
});
