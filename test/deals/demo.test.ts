/** The demo shop of a fresh host: something is for sale at any business time, and nothing is not sold. */
/// <reference path="../../builtin-tenants/kit/text-modules.d.ts" />
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterEach, beforeEach, expect, test } from 'vitest';
import type { Database, Env } from '../../builtin-tenants/deals/src/environment.ts';
import { app } from '../../builtin-tenants/deals/src/http/app.ts';
import { openService } from '../../builtin-tenants/deals/src/service.ts';
import { type MemoryDatabase, memoryDatabase } from './support/memory-database.ts';
import { DAY_MS } from './support/parts.ts';
import { newSigningPair, type SigningPair, signRequest } from './support/signing.ts';

let directory: Server;
let appUrl: string;
let key: SigningPair;
let db: MemoryDatabase;

beforeEach(async () => {
  key = await newSigningPair('one');
  directory = createServer((_, reply) => reply.end(JSON.stringify({ keys: [key.jwk] })));
  await new Promise<void>((resolve) => directory.listen(0, '127.0.0.1', () => resolve()));
  appUrl = `http://127.0.0.1:${(directory.address() as AddressInfo).port}`;
  db = memoryDatabase();
});
afterEach(() => {
  db.close();
  directory.closeAllConnections();
  directory.close();
});

/** As a new instance, after business time was moved. */
function start(days: number) {
  const another = Object.create(db) as Database;
  const env = { DB: another, APP_URL: appUrl, DEALS_SECRET: 'secret', CLOCK_OFFSET_MS: String(days * DAY_MS) };
  return openService(env as unknown as Env);
}

async function ask(days: number, query: string, usage = 'none'): Promise<{ status: number; deals?: object[] }> {
  const path = `/v1/deals${query}`;
  const { method, headers } = await signRequest({ key, appUrl, method: 'GET', path, body: '', account: 'none', usage });
  const answer = await app(await start(days)).fetch(new Request(`${appUrl}${path}`, { method, headers }));
  return { status: answer.status, ...((await answer.json()) as object) };
}

const PAID = '[{"meterSlug":"deal_query","quantity":1}]';

test.each([1, 3, 31, 200])('there are deals after a jump of %i days, each day is observed once', async (days) => {
  await start(0);
  const { deals } = await ask(days, '', PAID);
  expect(deals?.length).toBeGreaterThan(0);
  // Two instances that start at once.
  await Promise.all([start(days + 40), start(days + 40)]);
  const observed = 'SELECT offer, count(*) AS count, count(DISTINCT at / ?) AS days FROM observations GROUP BY offer';
  for (const row of db.sql<{ count: number; days: number }>(observed, DAY_MS)) expect(row.count).toBe(row.days);
});

test('a query that finds something has a price, one that finds nothing has none', async () => {
  expect(await ask(0, '?currency=EUR')).toMatchObject({ status: 402, usage: [{ meterSlug: 'deal_query' }] });
  expect((await ask(0, '?currency=EUR', PAID)).deals?.length).toBeGreaterThan(0);
  expect(await ask(0, '?currency=USD')).toMatchObject({ status: 200, deals: [] });
  // It was paid a moment before, when there was one.
  expect(await ask(0, '?currency=USD', PAID)).toMatchObject({ status: 404 });
});
