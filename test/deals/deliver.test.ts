/** Webhooks that hang: nobody else's events wait for them. */
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { MIGRATIONS } from '../../builtin-tenants/deals/src/database/migrations.ts';
import { deliverEvents } from '../../builtin-tenants/deals/src/watches/deliver.ts';
import { migrate } from '../../builtin-tenants/kit/migrate.ts';
import { type MemoryDatabase, memoryDatabase } from './support/memory-database.ts';
import { NOON } from './support/parts.ts';

let db: MemoryDatabase;
/** Ends the answers that hang. */
let release: (answer: Response) => void;
let called: string[];

beforeEach(async () => {
  db = memoryDatabase();
  await migrate(db, MIGRATIONS);
  called = [];
  const hangs = new Promise<Response>((resolve) => {
    release = resolve;
  });
  vi.stubGlobal('fetch', (url: string) => {
    called.push(url);
    return url.includes('hangs') ? hangs.then((answer) => answer.clone()) : Promise.resolve(new Response());
  });
});
afterEach(() => {
  vi.unstubAllGlobals();
  db.close();
});

/** A watch with events that wait; each later one waits since a second later. */
function watch(account: string, name: string, events: number, since = 0): void {
  const id = `${account}-${name}`;
  db.sql(
    `INSERT INTO watches (id, account, request, state, query, "trigger", every_s, delivery, webhook_secret, created_at, updated_at, paid_through, next_at)
     VALUES (?, ?, ?, 'running', '{}', '{}', 60, ?, 'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw', 0, 0, 0, 0)`,
    id,
    account,
    id,
    JSON.stringify({ webhook: `https://${id}.example/` }),
  );
  for (let n = 1; n <= events; n += 1)
    db.sql(
      "INSERT INTO watch_events (id, watch, sequence, type, body, created_at, delivery, next_at) VALUES (?, ?, ?, 'drop', '{}', 0, 'waiting', ?)",
      `${id}-${n}`,
      id,
      n,
      NOON + since + n * 1_000 - 1_000_000,
    );
}

const delivered = () =>
  db.sql<{ id: string }>("SELECT id FROM watch_events WHERE delivery = 'delivered' ORDER BY place").map(({ id }) => id);
const hanging = () => called.filter((url) => url.includes('hangs')).length;

test('a hundred of one account that hang hold up nobody, and an account has ten attempts at a time', async () => {
  for (let n = 0; n < 100; n += 1) watch('slow', `hangs${n}`, 2, -500_000);
  watch('quick', 'one', 30);
  watch('other', 'one', 1);
  const run = deliverEvents(db, NOON, () => true);
  await expect.poll(() => delivered()).toHaveLength(31);
  expect(hanging()).toBe(10);
  release(new Response());
  expect(await run).toBe(231);
  expect(delivered()).toHaveLength(231);
  const order = called.filter((url) => url.includes('quick'));
  expect(order).toHaveLength(30);
});

test('events of one watch go out one after the other', async () => {
  watch('slow', 'hangs', 3);
  const run = deliverEvents(db, NOON, () => true);
  await expect.poll(() => hanging()).toBe(1);
  release(new Response(null, { status: 500 }));
  expect(await run).toBe(1);
  expect(db.sql('SELECT attempts, next_at FROM watch_events ORDER BY place')).toEqual([
    { attempts: 1, next_at: NOON + 5_000 },
    { attempts: 0, next_at: NOON + 1_000 - 1_000_000 + 1_000 },
    { attempts: 0, next_at: NOON + 2_000 - 1_000_000 + 1_000 },
  ]);
});
