/** What watches tell, on the whole host: a shop of the test lowers its price, and events arrive signed, in order, at least once. */
import type { ServerResponse } from 'node:http';
import { Webhook } from 'standardwebhooks';
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import {
  ANY_WATCH,
  createWatch,
  DAY_MS,
  dealsAreUp,
  type EventView,
  grant,
  HOUR_MS,
  type LocalServer,
  MINUTE_MS,
  readWatches,
  register,
  runCrons,
  serveLocally,
  startDealsHost,
  type WatchView,
} from './support/deals-host.ts';
import type { TestHost } from './support/host.ts';
import type { TestAccount } from './support/pay-callers.ts';
import { until } from './support/until.ts';

interface Delivery {
  headers: Record<string, string>;
  body: string;
  event: EventView;
}

/** As a stranger would write it. */
const TITLE = 'Tracked lamp <script>alert(1)</script>';

let shop: LocalServer;
let hook: LocalServer;
let host: TestHost;
let account: TestAccount;
let watch: WatchView;
const delivered: Delivery[] = [];
let receive: (delivery: Delivery, reply: ServerResponse) => void;
/** Minor units of the tracked lamp. */
let lamp = 10_000;
let stock = 'in stock';

beforeAll(async () => {
  shop = await serveLocally(
    (_asked, reply) =>
      void reply
        .writeHead(200, { 'content-type': 'text/csv; charset=utf-8' })
        .end(
          `id,title,link,price,availability\nLAMP,${TITLE},https://shop.example/lamp,${(lamp / 100).toFixed(2)} EUR,${stock}\n`,
        ),
  );
  hook = await serveLocally(async (one, reply) => {
    let body = '';
    for await (const chunk of one) body += chunk;
    const delivery = { headers: one.headers as Record<string, string>, body, event: JSON.parse(body) as EventView };
    delivered.push(delivery);
    receive(delivery, reply);
  });
  host = await startDealsHost(
    [shop, hook],
    [
      {
        id: 'csv',
        kind: 'csv',
        url: `${shop.url}/feed.csv`,
        merchant: 'Test shop',
        country: 'DE',
        currency: 'EUR',
        every_s: 3_600,
        legal_basis: 'a test of its own',
      },
    ],
  );
  await runCrons(host);
});
afterAll(async () => {
  await host?.stop();
  for (const server of [shop, hook]) await server?.close();
});
beforeEach(() => {
  receive = (_delivery, reply) => void reply.writeHead(204).end();
});

/** Time passes; what is due then is done. */
const pass = async (ms: number) => {
  await host.advance(ms);
  await dealsAreUp(host);
  await runCrons(host);
};
/** The shop is read and its deals are published; at its next evaluation the watch finds them. */
const readAndTell = async () => {
  await pass(HOUR_MS);
  await pass(16 * MINUTE_MS);
};

test('a price that was watched for weeks and drops is a deal; the watch tells it, signed', async () => {
  for (let day = 0; day < 15; day++) await pass(DAY_MS);
  account = await register(host);
  await grant(host, account, '20.00');
  watch = await createWatch(host, account, {
    query: { q: 'tracked lamp' },
    trigger: { on: ['enter', 'new_low', 'drop', 'rise', 'restock', 'expire'], notify_initial: true },
    every_s: 900,
    delivery: { webhook: `${hook.url}/hook` },
  });
  lamp = 8_000;
  await readAndTell();
  const [delivery] = await until(() => (delivered.length > 0 ? delivered : undefined));
  expect(delivery?.event).toMatchObject({
    type: 'enter',
    watch_id: watch.id,
    sequence: 1,
    deal: {
      title: TITLE,
      price: { minor: 8_000, currency: 'EUR', exponent: 2 },
      reference: { minor: 10_000 },
      discount_bps: 2_000,
      demo: false,
    },
  });
  const { headers, body } = delivery as Delivery;
  expect(new Webhook(watch.webhook_secret ?? '').verify(body, headers)).toEqual(delivery?.event);
  expect(() => new Webhook(watch.webhook_secret ?? '').verify(`${body} `, headers)).toThrow();
  // A title of a stranger is text on the page, whatever is in it.
  const page = await (await fetch(`${host.url}/deals/`)).text();
  expect(page).toContain('Tracked lamp &lt;script&gt;');
  expect(page).not.toContain('<script>alert');
});

test('a webhook that leads to where the operator reads a source is refused', async () => {
  for (const webhook of [
    `${shop.url}/orders`,
    `${shop.url.replace('127.0.0.1', '127.1')}/`,
    'http://engine.internal/',
  ]) {
    const watched = createWatch(host, account, { ...ANY_WATCH, delivery: { webhook } });
    await expect(watched).rejects.toThrow('/delivery/webhook: that host is not public');
  }
});

test('a receiver that is away gets it again, later and later, and what follows comes after it', async () => {
  delivered.length = 0;
  receive = (_delivery, reply) => void reply.writeHead(500).end();
  lamp = 7_500;
  await readAndTell();
  lamp = 7_000;
  await readAndTell();
  const failed = delivered.map(({ event }) => event.sequence);
  expect(failed.length).toBeGreaterThan(0);
  expect(new Set(failed)).toEqual(new Set([2]));
  receive = (_delivery, reply) => void reply.writeHead(200).end();
  delivered.length = 0;
  await pass(12 * HOUR_MS);
  const taken = await until(() => (delivered.length >= 4 ? delivered : undefined));
  const order = taken.map(({ event }) => event.sequence);
  expect(order).toEqual(order.toSorted((a, b) => a - b));
  expect(order.slice(0, 4)).toEqual([2, 3, 4, 5]);
  expect(taken.slice(0, 4).map(({ event }) => event.type)).toEqual(['new_low', 'drop', 'new_low', 'drop']);
  expect(taken[0]?.event).toMatchObject({ previous_minor: 8_000 });
});

test('an event that was taken but whose answer was lost comes again, with the same id', async () => {
  delivered.length = 0;
  let lost = 0;
  receive = (_delivery, reply) => {
    // The receiver has it; the connection breaks before its 200 is out.
    if (lost++ === 0) reply.destroy();
    else reply.writeHead(200).end();
  };
  lamp = 6_500;
  await readAndTell();
  await pass(HOUR_MS);
  const [first, second] = await until(() => (delivered.length >= 2 ? delivered : undefined));
  expect(second?.headers['webhook-id']).toBe(first?.headers['webhook-id']);
  expect(second?.body).toBe(first?.body);
});

test('the feed has all of it in order, page by page, each once', async () => {
  const { events, events_after } = await readWatches(host, account, '');
  expect(events.length).toBeGreaterThanOrEqual(7);
  expect(events.map(({ sequence }) => sequence)).toEqual(events.map((_event, index) => index + 1));
  expect((await readWatches(host, account, events_after)).events).toEqual([]);
  expect((await readWatches(host, await register(host), '')).events).toEqual([]);
  lamp = 6_000;
  await readAndTell();
  const later = await readWatches(host, account, events_after);
  expect(later.events.map(({ type }) => type)).toEqual(['new_low', 'drop']);
  expect(later.events[0]?.sequence).toBe(events.length + 1);
});

test('a price that flaps A→B→A is not sold twice as a drop', async () => {
  const { events_after } = await readWatches(host, account, '');
  for (const minor of [6_600, 6_000]) {
    lamp = minor;
    await readAndTell();
  }
  // Above what it cost before it is no deal, and back there it is none either: 60.00 EUR is its reference now.
  const { events } = await readWatches(host, account, events_after);
  expect(events.map(({ type }) => type)).toEqual(['expire']);
});

test('a receiver that says 410 gets nothing more; the feed goes on', async () => {
  receive = (_delivery, reply) => void reply.writeHead(410).end();
  lamp = 5_500;
  await readAndTell();
  const count = delivered.length;
  receive = (_delivery, reply) => void reply.writeHead(200).end();
  lamp = 5_000;
  await readAndTell();
  await pass(HOUR_MS);
  expect(delivered).toHaveLength(count);
  const { events } = await readWatches(host, account, '');
  expect(events.at(-1)).toMatchObject({ type: 'drop', deal: { price: { minor: 5_000 } } });
});

test('what ends expires', async () => {
  stock = 'out of stock';
  await readAndTell();
  const { events } = await readWatches(host, account, '');
  expect(events.at(-1)?.type).toBe('expire');
});
