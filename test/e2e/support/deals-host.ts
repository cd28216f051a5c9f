/** The whole host with the pay platform and deals, and a shop of the test that deals may read although it is local. */
import { readdir, realpath, stat } from 'node:fs/promises';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import path from 'node:path';
import { createClient } from '@libsql/client';
import { SCHEDULED_PATH } from '../../../host/runtime/system-worker.ts';
import { jsonPost, x402Fetch } from './callers.ts';
import { requestSocket, startHost, type TestHost } from './host.ts';
import { bearer, payFromCredit, type TestAccount } from './pay-callers.ts';
import { until } from './until.ts';

export const MINUTE_MS = 60_000;
export const HOUR_MS = 3_600_000;
export const DAY_MS = 86_400_000;

export interface LocalServer {
  url: string;
  port: number;
  close(): Promise<void>;
}

/** An HTTP server of the test on a free port of 127.0.0.1. */
export async function serveLocally(
  answer: (asked: IncomingMessage, reply: ServerResponse) => unknown,
): Promise<LocalServer> {
  const server: Server = createServer((asked, reply) => void answer(asked, reply));
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', () => resolve()));
  const { port } = server.address() as AddressInfo;
  return {
    url: `http://127.0.0.1:${port}`,
    port,
    async close() {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

/** @param open private addresses that deals may call @param sources the operator's sources; none: the demo shop */
export async function startDealsHost(open: LocalServer[] = [], sources?: object[]): Promise<TestHost> {
  const host = await startHost({
    builtins: ['pay', 'deals'],
    flags: {
      // The host does not know of the crons that the test runs (`runCrons`), and takes who has much memory for idle.
      'runtime-bloated-idle-ms': String(HOUR_MS),
      'runtime-egress-allow': JSON.stringify({ deals: open.map(({ port }) => `127.0.0.1:${port}`) }),
      'builtin-tenants-secrets': JSON.stringify(sources ? { deals: { SOURCES: JSON.stringify(sources) } } : {}),
    },
  });
  await dealsAreUp(host).catch(async (error) => {
    await host.stop();
    throw error;
  });
  return host;
}

export async function dealsAreUp(host: TestHost): Promise<void> {
  for (const slug of ['pay', 'deals'])
    await until(
      async () => ((await fetch(`${host.url}/${slug}/healthz`)).status === 200 ? true : undefined),
      () => `${slug} is not up:\n${host.output()}`,
    );
}

export async function register(host: Pick<TestHost, 'url'>): Promise<TestAccount> {
  const answer = await fetch(`${host.url}/pay/accounts/anonymous`, { method: 'POST' });
  const { accountId, credential } = (await answer.json()) as { accountId: string; credential: string };
  return { id: accountId, credential };
}

/** Buys credit with a test wallet by a stock x402 client. */
export async function topUp(host: TestHost, account: TestAccount, amountUsd: string, wallet = 5): Promise<Response> {
  return x402Fetch(host.network, wallet)(
    `${host.url}/pay/deals-watches/plans/default/purchase`,
    jsonPost({ amountUsd }, bearer(account)),
  );
}

/** A gift of the operator, which need not be five dollars. */
export async function grant(host: Pick<TestHost, 'operator'>, account: TestAccount, amountUsd: string): Promise<void> {
  const { status, text } = await host.operator('POST', '/pay/grants', { accountId: account.id, amountUsd });
  if (status >= 300) throw new Error(text);
}

export async function balanceUsd(host: TestHost, account: TestAccount): Promise<string> {
  const answer = await fetch(`${host.url}/pay/me`, { headers: bearer(account) });
  return ((await answer.json()) as { balanceUsd: string }).balanceUsd;
}

export interface WatchView {
  id: string;
  state: string;
  paid_through: string;
  suspended_at?: string;
  created_at: string;
  webhook_secret?: string;
}

export const ANY_WATCH = { query: {}, trigger: { on: ['enter'] } };

export async function createWatch(host: TestHost, account: TestAccount, body: object = ANY_WATCH): Promise<WatchView> {
  const { method, headers, body: text } = jsonPost(body);
  const answer = await payFromCredit(`${host.url}/pay/deals/v1/watches`, account, {
    method: method as string,
    headers: headers as Record<string, string>,
    body: text as string,
  });
  if (answer.status !== 201) throw new Error(`${answer.status}: ${await answer.text()}`);
  return (await answer.json()) as WatchView;
}

export interface EventView {
  id: string;
  type: string;
  watch_id: string;
  sequence: number;
  // biome-ignore lint/suspicious/noExplicitAny: tests look at any deal
  deal: any;
  previous_minor?: number;
}

export async function readWatches(
  host: TestHost,
  account: TestAccount,
  eventsAfter?: string,
): Promise<{ watches: WatchView[]; events: EventView[]; events_after: string }> {
  const query = eventsAfter === undefined ? '' : `?events_after=${eventsAfter}`;
  const answer = await fetch(`${host.url}/pay/deals/v1/watches${query}`, { headers: bearer(account) });
  if (answer.status !== 200) throw new Error(`${answer.status}: ${await answer.text()}`);
  return (await answer.json()) as { watches: WatchView[]; events: EventView[]; events_after: string };
}

export async function deleteWatch(host: TestHost, account: TestAccount, id: string): Promise<number> {
  return (await fetch(`${host.url}/pay/deals/v1/watches/${id}`, { method: 'DELETE', headers: bearer(account) })).status;
}

/**
 * Where the present instance of a slug listens for the host: another name for each process. `run/<slug>` leads to the
 * sockets of its services; beside them each instance has a folder of its own.
 */
export async function systemSocket(host: TestHost, slug: string): Promise<string> {
  const cell = path.dirname(await realpath(path.join(host.data, 'run', slug)));
  const found = (await readdir(cell, { recursive: true })).filter((name) => name.endsWith('system.sock'));
  const dated = await Promise.all(
    found.map(async (name) => ({ file: path.join(cell, name), at: (await stat(path.join(cell, name))).mtimeMs })),
  );
  const newest = dated.sort((a, b) => b.at - a.at)[0];
  if (!newest) throw new Error(`${slug} does not listen`);
  return newest.file;
}

/** Runs the crons of the pay platform and of deals now; the host runs them each minute by itself. */
export async function runCrons(host: TestHost): Promise<void> {
  const run = { cron: '* * * * *', scheduledTime: Date.now() };
  const runOne = async (slug: string) => {
    return requestSocket(await systemSocket(host, slug), 'POST', SCHEDULED_PATH, run);
  };
  const outcomes = await until(
    async () => {
      // After a move of the clock the sandboxes are others, which may not listen yet.
      await dealsAreUp(host);
      return Promise.all([runOne('pay'), runOne('deals')]).catch(() => undefined);
    },
    () => 'the crons did not run',
  );
  for (const { status, text } of outcomes)
    if (status !== 200 || !text.includes('"ok"')) throw new Error(`${status} ${text}\n${host.output().slice(-3_000)}`);
}

/** The database of a built-in tenant, read beside it. */
export async function readDatabase<Row>(host: TestHost, slug: string, sql: string): Promise<Row[]> {
  const registry = createClient({ url: `file:${path.join(host.data, 'registry.db')}` });
  await registry.execute('PRAGMA busy_timeout = 5000');
  const found = await registry.execute({ sql: 'SELECT tenant FROM deployments WHERE slug = ?', args: [slug] });
  registry.close();
  const file = path.join(host.data, 'tenants', String(found.rows[0]?.tenant), 'sql', 'db.sqlite');
  const client = createClient({ url: `file:${file}` });
  try {
    await client.execute('PRAGMA busy_timeout = 5000');
    return (await client.execute(sql)).rows as Row[];
  } finally {
    client.close();
  }
}
