/** The pages show what strangers wrote as text, and say what they say from one table. */
import { describe, expect, test } from 'vitest';
import { OPERATIONS } from '../../builtin-tenants/deals/src/http/operations.ts';
import { priceChart } from '../../builtin-tenants/deals/src/pages/chart.ts';
import { docsPage } from '../../builtin-tenants/deals/src/pages/docs.ts';
import { foundPage } from '../../builtin-tenants/deals/src/pages/found.ts';
import { landingPage } from '../../builtin-tenants/deals/src/pages/landing.ts';
import { filledIn, readSearch, searchPage } from '../../builtin-tenants/deals/src/pages/search.ts';
import { addressesOf, authText, llmsText, openApi } from '../../builtin-tenants/deals/src/pages/texts.ts';
import { prefixOf } from '../../builtin-tenants/kit/look/tenant.ts';
import { DAY_MS, deal, NOON } from './support/parts.ts';

const SITE = { prefix: '/deals', places: [{ name: 'Turnpike', href: 'https://host.example/' }] };
const WHERE = addressesOf('https://host.example');
const POINTS = Array.from({ length: 30 }, (_, day) => ({
  at: NOON - (30 - day) * DAY_MS,
  minor: day < 25 ? 10_000 : 8_000,
}));
const REFERENCE = {
  kind: 'min_30d_before_drop' as const,
  minor: 10_000,
  from: new Date(NOON - 35 * DAY_MS).toISOString(),
  to: new Date(NOON - 5 * DAY_MS).toISOString(),
  days_observed: 25,
};
const text = async (page: ReturnType<typeof landingPage>) => String(await page);

describe('the landing page', () => {
  test('shows scripts, quotes and tags of strangers as text, and links only to the web', async () => {
    const evil = '"><script>alert(1)</script><img src=x onerror=alert(2)>';
    const hostile = deal('a', 8_000, { title: evil, url: 'javascript:alert(3)', tier: evil, reference: REFERENCE });
    hostile.offer.merchant = evil;
    hostile.offer.category = evil;
    hostile.evidence = [{ source: evil, url: evil, observed_at: new Date(NOON).toISOString(), sha256: evil }];
    const page = await text(landingPage(SITE, WHERE, { deal: hostile, points: POINTS, count: 1 }, NOON));
    expect(page).not.toContain('<script');
    expect(page).not.toContain('<img');
    expect(page).not.toContain('javascript:');
    expect(page).toContain('&lt;script&gt;alert(1)&lt;/script&gt;');
  });

  test('marks demo data, and does not mark other data so', async () => {
    const page = (demo: boolean) =>
      text(
        landingPage(
          SITE,
          WHERE,
          { deal: deal('a', 8_000, { demo, reference: REFERENCE }), points: POINTS, count: 1 },
          NOON,
        ),
      );
    expect(await page(true)).toContain('Demo data');
    expect(await page(false)).not.toContain('Demo data');
  });

  test('says so where there is no deal', async () => {
    const page = await text(landingPage(SITE, WHERE, undefined, NOON));
    expect(page).toContain('no deal right now');
    expect(page).toContain('href="/deals/docs"');
  });
});

describe('the search', () => {
  const search = async (query: string, matches?: boolean) => {
    const given = filledIn(new URLSearchParams(query));
    return text(searchPage(SITE, WHERE, given, readSearch(given), matches));
  };

  test('drops what was not filled in, and says what a query is and costs', async () => {
    const page = await search('q=&category=Kitchen&currency=eur&at_low=true&min_discount_bps=1500&sort=price', true);
    const url = 'https://host.example/pay/deals/v1/deals?category=Kitchen&amp;currency=eur&amp;at_low=true';
    expect(page).toContain(`href="${url}&amp;min_discount_bps=1500&amp;sort=price"`);
    expect(page).toContain('Run it for 0.15 USD');
    expect(page).toContain(
      '{&quot;category&quot;:&quot;Kitchen&quot;,&quot;currency&quot;:&quot;EUR&quot;,&quot;at_low&quot;:true,&quot;min_discount_bps&quot;:1500}',
    );
    expect(page).toContain('<option value="1500" selected>');
    expect(await search('q=x', false)).toContain('<strong>free</strong>');
    expect(await search('')).not.toContain('id="query"');
  });

  test.each([`q=${encodeURIComponent(`'"><script>x`)}`, 'max_price_minor=5', 'a=1', 'sort=price', 'q=1&q=2', 'gtin=x'])(
    '%s: what is wrong is said, and what was typed is text',
    async (query) => {
      const page = await search(query, true);
      expect(page).not.toContain('<script');
      expect(page.includes('role="alert"')).toBe(!query.startsWith("q='"));
      if (query.startsWith("q='")) expect(page).toContain(`deals?q=%27%22%3E%3Cscript%3Ex`);
    },
  );
});

test('the answer has a chart for each deal, and what sources wrote as text', async () => {
  const known = deal('a', 8_000, { reference: REFERENCE });
  const evil = { ...known, title: '<script>x</script>', url: 'javascript:alert(1)' };
  const facts = {
    deals: [
      { deal: known, points: POINTS },
      { deal: evil, points: [] },
    ],
    asked: '?q=x',
    now: NOON,
  };
  const page = await text(foundPage(SITE, WHERE, { ...facts, next: 'https://host.example/more', paid: true }));
  expect(page.match(/class="line"/g)).toHaveLength(1);
  expect(page).toContain('paid: 0.15 USD');
  expect(page).toContain('2 deals');
  expect(page).not.toMatch(/<script|javascript:/);
  expect(page).not.toMatch(/<link rel="stylesheet"/);
});

describe('the chart', () => {
  const chart = async (more: Partial<Parameters<typeof priceChart>[0]> = {}) =>
    String(
      await priceChart({
        points: POINTS,
        reference: 10_000,
        droppedAt: NOON - 5 * DAY_MS,
        now: NOON,
        currency: 'EUR',
        exponent: 2,
        ...more,
      }),
    );

  test('has the prices, the reference and the drop, in words too', async () => {
    const svg = await chart();
    expect(svg.match(/class="(?:line|warn dashed|good dotted|dot)"/g)).toHaveLength(4);
    expect(svg).toContain('80.00 EUR now, reference 100.00 EUR');
    expect(svg).not.toContain('style=');
  });

  test.each([
    ['one price only', { points: [{ at: NOON, minor: 5 }], reference: undefined, droppedAt: undefined }],
    ['a price that never moved', { points: POINTS.map(({ at }) => ({ at, minor: 7 })) }],
    ['yen', { points: POINTS, currency: 'JPY', exponent: 0 }],
    ['nothing free', { points: POINTS.map(({ at }) => ({ at, minor: 0 })), reference: 0 }],
    ['very large prices', { points: POINTS.map(({ at, minor }) => ({ at, minor: minor * 1e8 })), reference: 1e12 }],
  ])('is drawn for %s, with finite numbers inside the picture', async (_name, more) => {
    const svg = await chart(more);
    expect(svg).not.toMatch(/NaN|Infinity/);
    for (const [, y] of svg.matchAll(/ y[12]="([^"]+)"/g)) {
      expect(Number(y)).toBeGreaterThanOrEqual(0);
      expect(Number(y)).toBeLessThanOrEqual(240);
    }
    expect((svg.match(/class="grid"/g) ?? []).length).toBeLessThan(10);
  });

  test('of nothing is a sentence', async () => {
    expect(await chart({ points: [] })).toContain('No price was observed yet');
  });
});

test.each(OPERATIONS.map((operation) => [`${operation.method} ${operation.path}`, operation] as const))(
  '%s is in every description, with its price',
  async (_name, operation) => {
    const { method, path, meter, parameters } = operation;
    const llms = llmsText(WHERE);
    const docs = await text(docsPage(SITE, WHERE));
    expect(llms).toContain(`${method} https://host.example/pay/deals${path}`);
    expect(authText(WHERE)).toContain(`${method} ${path}`);
    expect(docs).toContain(`${method} ${path}`);
    const paths = openApi(WHERE).paths as Record<string, Record<string, { parameters?: { name: string }[] }>>;
    const described = paths[path]?.[method.toLowerCase()];
    expect((described?.parameters ?? []).map(({ name }) => name)).toEqual(parameters.map(({ name }) => name));
    expect('x-payment-info' in (described ?? {})).toBe(meter !== undefined);
    if (meter) expect(llms).toContain(meter.priceUsd);
  },
);

test('only a plain path is believed as the prefix', () => {
  const prefix = (value: string) =>
    prefixOf(new Request('https://x.example/', { headers: { 'x-forwarded-prefix': value } }));
  expect(prefix('/deals')).toBe('/deals');
  for (const bad of ['"><script>', '//evil.example', 'https://evil.example', '/a/../b', '/'])
    expect(prefix(bad)).toBe('');
});
