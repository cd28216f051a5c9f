/** What an account is told by webhook, and automatic top-ups by a mandate of a wallet, with stock receivers and clients. */
import { once } from 'node:events';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { Webhook } from 'standardwebhooks';
import type { Hex } from 'viem';
import { generatePrivateKey } from 'viem/accounts';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { Network } from '../../host/payments/network/index.ts';
import {
  anonymous,
  balanceOf,
  bearer,
  give,
  internal,
  ledgerIsSound,
  operator,
  type TestAccount,
} from './support/pay-callers.ts';
import { type PayRig, startPayRig } from './support/pay-rig.ts';
import { balance, mandateClient, revokeKey, startNetwork } from './support/payments-rig.ts';
import { until } from './support/until.ts';

let rig: PayRig;
let stopNetwork: () => Promise<void>;
let network: Network;
/** Receives webhooks: the operator has opened the first to the platform, and not the second. */
let receivers: { open: Receiver; closed: Receiver };

beforeAll(async () => {
  ({ network, stop: stopNetwork } = await startNetwork());
  receivers = { open: await receive(), closed: await receive() };
  rig = await startPayRig(network, { allow: [new URL(receivers.open.url).host] });
});
afterAll(async () => {
  await rig.stop();
  for (const { server } of Object.values(receivers)) server.close();
  await stopNetwork();
});

let next = 0;
const charge = (account: Pick<TestAccount, 'id'>, quantity = 1) =>
  internal(rig, '/charges', {
    key: `test:${++next}`,
    accountId: account.id,
    serviceSlug: 'deals-watches',
    usage: [{ meterSlug: 'watch_day', quantity }],
  });
const funded = async (amountUsd: string) => {
  const account = await anonymous(rig);
  await give(rig, account, amountUsd);
  return account;
};
const me = (account: TestAccount, method: string, path: string, body?: object) =>
  fetch(`${rig.pay}/me${path}`, {
    method,
    headers: { ...bearer(account), 'content-type': 'application/json' },
    ...(body ? { body: JSON.stringify(body) } : {}),
  });

interface Receiver {
  server: Server;
  url: string;
  status: number;
  got: { headers: Record<string, string>; body: string }[];
}

async function receive(): Promise<Receiver> {
  const receiver: Receiver = { server: createServer(), url: '', status: 204, got: [] };
  receiver.server.on('request', async (asked, reply) => {
    let body = '';
    for await (const chunk of asked) body += chunk;
    receiver.got.push({ headers: asked.headers as Record<string, string>, body });
    reply.writeHead(receiver.status, receiver.status === 302 ? { location: receivers.closed.url } : {}).end();
  });
  receiver.server.listen(0, '127.0.0.1');
  await once(receiver.server, 'listening');
  receiver.url = `http://127.0.0.1:${(receiver.server.address() as AddressInfo).port}/hook`;
  return receiver;
}

describe('webhooks of an account', () => {
  const added = async (account: TestAccount, url: string) =>
    (await (await me(account, 'POST', '/webhooks', { url })).json()) as { id: string; secret: string };
  const eventsOf = async (account: TestAccount) =>
    ((await (await me(account, 'GET', '/webhooks/events')).json()) as { events: Record<string, unknown>[] }).events;
  const of = ({ got }: Receiver, account: TestAccount) => got.filter(({ body }) => body.includes(account.id));

  test('low credit, a suspension and its end reach a stock receiver, over a restart, with one id each', async () => {
    const account = await funded('0.25');
    const { open } = receivers;
    const { secret } = await added(account, open.url);
    const set = await me(account, 'PUT', '/notices', { lowBalanceUsd: '0.20' });
    expect(await set.json()).toEqual({ lowBalanceUsd: '0.20', isLow: false, isSuspended: false });
    open.status = 500;
    await charge(account);
    await rig.sweep();
    const [failed] = of(open, account);
    open.status = 204;
    await charge(account);
    expect((await charge(account)).status).toBe(402);
    await rig.restart();
    await rig.sql('UPDATE webhook_events SET next_at = 0');
    await rig.sweep();
    await give(rig, account, '1.00');
    const got = await until(async () => of(open, account).length === 4 && of(open, account));
    expect(got[1]?.body).toBe(failed?.body);
    expect(got[1]?.headers['webhook-id']).toBe(failed?.headers['webhook-id']);
    const read = got.map(({ headers, body }) => new Webhook(secret).verify(body, headers) as Record<string, unknown>);
    expect(read.slice(1)).toMatchObject([
      { type: 'balance_low', accountId: account.id, balanceUsd: '0.15', lowBalanceUsd: '0.20' },
      { type: 'account_suspended', accountId: account.id, balanceUsd: '0.05', priceUsd: '0.10' },
      { type: 'account_resumed', accountId: account.id, balanceUsd: '1.05' },
    ]);
    expect(new Set(read.map(({ id }) => id)).size).toBe(3);
    expect((await eventsOf(account)).map(({ delivery, attempts }) => [delivery, attempts])).toEqual([
      ['delivered', 1],
      ['delivered', 1],
      ['delivered', 2],
    ]);
  });

  test('nothing private is called: not by address, by redirect, by what the operator opened', async () => {
    const account = await funded('1.00');
    const { open, closed } = receivers;
    const { id } = await added(account, closed.url);
    const other = await added(account, open.url);
    open.status = 302;
    for (const webhook of [id, other.id])
      expect((await me(account, 'POST', `/webhooks/${webhook}/test`)).status).toBe(202);
    await until(async () => (await eventsOf(account)).every(({ attempts }) => attempts === 1));
    await rig.sweep();
    open.status = 204;
    expect(closed.got).toEqual([]);
    expect((await eventsOf(account)).map(({ delivery }) => delivery)).toEqual(['waiting', 'waiting']);
    // The operator opened it for an origin: what accounts name must not lead there.
    await operator(rig, 'PUT', '/services/inside', { origin: open.url });
    for (const url of [
      `${new URL(open.url).origin}/internal/pay-events`,
      'http://mailer.internal/',
      'file:///etc/passwd',
    ])
      expect((await me(account, 'POST', '/webhooks', { url })).status).toBe(400);
    const before = open.got.length;
    await rig.sql('UPDATE webhook_events SET next_at = 0');
    await rig.sweep();
    expect(open.got).toHaveLength(before);
    await rig.sql("DELETE FROM services WHERE slug = 'inside'");
  });

  test('belong to the account, and to credentials that manage it', async () => {
    const [account, stranger] = [await funded('1.00'), await funded('1.00')];
    const { id } = await added(account, receivers.open.url);
    for (const [method, path] of [
      ['DELETE', `/webhooks/${id}`],
      ['POST', `/webhooks/${id}/test`],
    ] as const)
      expect((await me(stranger, method, path)).status).toBe(404);
    const made = await me(account, 'POST', '/credentials', { dailyCapUsd: '0.10' });
    const capped = { id: account.id, credential: ((await made.json()) as { credential: string }).credential };
    expect((await me(capped, 'POST', '/webhooks', { url: receivers.open.url })).status).toBe(403);
    expect((await me(capped, 'PUT', '/notices', { lowBalanceUsd: null })).status).toBe(403);
    expect((await me(account, 'DELETE', `/webhooks/${id}`)).status).toBe(204);
    const listed = await (await me(account, 'GET', '/webhooks')).text();
    expect(listed).toBe('{"webhooks":[]}');
  });
});

describe('automatic top-ups', () => {
  interface View {
    mandate: { id: string; wallet: string; key: string; drawnUsd: string; limitUsd: string; until: string } | null;
    draws: { id: string; amountUsd: string; state: string; why: string | null }[];
  }
  const wallet = (index: number): Hex => network.wallets?.[index]?.privateKey ?? '0x';
  const view = async (account: TestAccount) => (await (await me(account, 'GET', '/auto-topup')).json()) as View;
  const terms = (more: object = {}) => ({
    amountUsd: '5.00',
    belowUsd: '1.00',
    limitUsd: '20.00',
    everyDays: 30,
    until: new Date(Date.now() + 90 * 86_400_000).toISOString(),
    ...more,
  });
  /** A stock client signs, as it pays: it asks, is answered 402, and asks again with the signature. */
  async function mandated(account: TestAccount, key: Hex, more: object = {}) {
    const client = mandateClient(network, key);
    const answer = await client.fetch(`${rig.pay}/me/auto-topup`, {
      method: 'POST',
      headers: { ...bearer(account), 'content-type': 'application/json' },
      body: JSON.stringify(terms(more)),
    });
    expect(answer.status).toBe(201);
    return { client, view: (await answer.json()) as View };
  }
  /** micro-USD that the wallet has spent since. */
  async function spending(address: string) {
    const before = await balance(network, 'tempo', address);
    return async () => Number(before - (await balance(network, 'tempo', address)));
  }
  const settled = (account: TestAccount) =>
    until(async () => {
      const { draws } = await view(account);
      return draws.length > 0 && draws.every(({ state }) => state !== 'begun') && draws;
    });

  test('a wallet signs once, and credit that falls below the amount is bought from then on', async () => {
    const account = await funded('1.05');
    const { client, view: signed } = await mandated(account, wallet(1));
    expect(signed.mandate).toMatchObject({
      wallet: client.address.toLowerCase(),
      amountUsd: '5.00',
      belowUsd: '1.00',
      limitUsd: '20.00',
      everyDays: 30,
      drawnUsd: '0.00',
    });
    const spent = await spending(client.address);
    await rig.sweep();
    expect((await view(account)).draws).toEqual([]);
    await charge(account);
    expect(await settled(account)).toMatchObject([{ amountUsd: '5.00', state: 'paid' }]);
    expect(await spent()).toBe(5_000_000);
    expect(await balanceOf(rig, account)).toBe(5_950_000);
    const { draws, mandate } = await view(account);
    expect(mandate?.drawnUsd).toBe('5.00');
    const statement = (await (await me(account, 'GET', '')).json()) as { lines: Record<string, unknown>[] };
    expect(statement.lines[0]).toMatchObject({
      kind: 'grant',
      amountUsd: '5.00',
      requestId: draws[0]?.id,
      memo: 'Automatic top-up of 5.00 USD',
    });
    expect(await ledgerIsSound(rig)).toBe(true);
  });

  test('twenty charges at once draw once, and never more than the mandate allows in its period', async () => {
    const account = await funded('2.00');
    const { client } = await mandated(account, wallet(2), { limitUsd: '12.00', belowUsd: '2.00' });
    const spent = await spending(client.address);
    const { open } = receivers;
    await me(account, 'POST', '/webhooks', { url: open.url });
    await Promise.all(Array.from({ length: 20 }, () => charge(account)));
    await until(async () => (await spent()) === 5_000_000 && (await balanceOf(rig, account)) === 5_000_000);
    expect(await settled(account)).toHaveLength(1);
    await charge(account, 40);
    await until(async () => (await balanceOf(rig, account)) === 6_000_000);
    // The third would be above the limit.
    await Promise.all([charge(account, 50), ...Array.from({ length: 19 }, () => rig.sweep())]);
    await until(async () => open.got.some(({ body }) => body.includes(account.id) && body.includes('"limit"')));
    await Promise.all(Array.from({ length: 20 }, () => charge(account)));
    await rig.sweep();
    expect(await spent()).toBe(10_000_000);
    expect((await view(account)).draws.map(({ state }) => state)).toEqual(['paid', 'paid']);
    const told = open.got.filter(({ body }) => body.includes(account.id) && body.includes('topup_failed'));
    expect(told.map(({ body }) => JSON.parse(body))).toMatchObject([{ reason: 'limit', amountUsd: '5.00' }]);
    await expect(
      rig.sql(
        "INSERT INTO draws (id, mandate, account, amount, state, at) SELECT 'drw_x', id, account, most, 'begun', ? FROM mandates WHERE account = ?",
        Date.now(),
        account.id,
      ),
    ).rejects.toThrow('its limit is reached');
  });

  test('a draw that fails is told, tried again later, and takes no credit away', async () => {
    const account = await funded('0.50');
    const { open } = receivers;
    await me(account, 'POST', '/webhooks', { url: open.url });
    await mandated(account, generatePrivateKey());
    const told = () => open.got.filter(({ body }) => body.includes(account.id)).map(({ body }) => JSON.parse(body));
    await until(async () => told().length > 0);
    expect(told()).toMatchObject([{ type: 'topup_failed', reason: 'funds', amountUsd: '5.00' }]);
    for (let n = 0; n < 3; n++) await rig.sweep();
    expect(told()).toHaveLength(1);
    expect(await balanceOf(rig, account)).toBe(500_000);
    expect(await (await me(account, 'GET', '/notices')).json()).toMatchObject({ isSuspended: false });
    expect((await charge(account)).status).toBe(201);
    await rig.sql('UPDATE mandates SET next_at = 0 WHERE account = ?', account.id);
    await rig.sweep();
    expect((await view(account)).draws.map(({ state, why }) => [state, why])).toEqual([
      ['failed', 'funds'],
      ['failed', 'funds'],
    ]);
  });

  test('the holder ends it at once, and so does the wallet on its chain', async () => {
    const account = await funded('2.00');
    const { client } = await mandated(account, wallet(3));
    const spent = await spending(client.address);
    const signature = client.sent.authorization ?? '';
    expect((await me(account, 'DELETE', '/auto-topup')).status).toBe(204);
    expect((await me(account, 'DELETE', '/auto-topup')).status).toBe(404);
    await charge(account, 15);
    await rig.sweep();
    expect(await view(account)).toEqual({ mandate: null, draws: [] });
    // What was signed is no mandate any more, whoever shows it.
    const again = { method: 'POST', headers: { authorization: signature } };
    expect((await fetch(`${rig.pay}/me/auto-topup`, again)).status).toBe(409);
    const { view: second } = await mandated(account, wallet(3), { belowUsd: '0.40' });
    await revokeKey(network, wallet(3), second.mandate?.key ?? '');
    await charge(account, 2);
    await until(async () => (await view(account)).mandate === null);
    expect((await view(account)).draws).toMatchObject([{ state: 'failed', why: 'revoked' }]);
    expect(await spent()).toBe(0);
  });

  test('a mandate is of the account that asked for it, and of nobody else', async () => {
    const [account, stranger] = [await funded('5.00'), await funded('0.10')];
    const { client, view: signed } = await mandated(account, wallet(4));
    const spent = await spending(client.address);
    const authorization = `${client.sent.authorization}, Bearer ${stranger.credential}`;
    expect((await fetch(`${rig.pay}/me/auto-topup`, { method: 'POST', headers: { authorization } })).status).toBe(402);
    expect(await view(stranger)).toEqual({ mandate: null, draws: [] });
    // The same signature again is the same mandate.
    const again = await fetch(`${rig.pay}/me/auto-topup`, {
      method: 'POST',
      headers: { authorization: client.sent.authorization ?? '' },
    });
    expect(((await again.json()) as View).mandate?.id).toBe(signed.mandate?.id);
    // A new one ends the one before.
    const { view: replaced } = await mandated(account, wallet(4), { limitUsd: '6.00' });
    expect(replaced.mandate?.id).not.toBe(signed.mandate?.id);
    expect(
      await rig.sql('SELECT sealed, ended_why FROM mandates WHERE id = ?', signed.mandate?.id ?? ''),
    ).toMatchObject([{ sealed: null, ended_why: 'replaced' }]);
    const capped = await me(account, 'POST', '/credentials', { dailyCapUsd: '0.10' });
    const limited = { id: account.id, credential: ((await capped.json()) as { credential: string }).credential };
    expect((await me(limited, 'POST', '/auto-topup', terms())).status).toBe(403);
    expect((await me(limited, 'DELETE', '/auto-topup')).status).toBe(403);
    expect(await spent()).toBe(0);
  });

  test.each([
    [{ amountUsd: '4.99' }, '/amountUsd'],
    [{ limitUsd: '4.00' }, '/limitUsd'],
    [{ belowUsd: '-1' }, '/belowUsd'],
    [{ everyDays: 0 }, '/everyDays'],
    [{ everyDays: 400 }, '/everyDays'],
    [{ until: new Date(Date.now() + 1_000).toISOString() }, '/until'],
    [{ until: '9999-01-01T00:00:00Z' }, '/until'],
  ])('%j is refused at its field', async (more, pointer) => {
    const refused = await me(await funded('1.00'), 'POST', '/auto-topup', terms(more));
    expect(refused.status).toBe(400);
    expect(await refused.json()).toMatchObject({ code: 'invalid_field', errors: [{ pointer }] });
  });

  test('killed at any step, a draw takes the money once and gives the credit once', async () => {
    const account = await funded('0.20');
    const { client } = await mandated(account, wallet(5), { limitUsd: '50.00', belowUsd: '1.00' });
    await settled(account);
    const spent = await spending(client.address);
    const before = await balanceOf(rig, account);
    for (let turn = 0; turn < 5; turn++) {
      await rig.sql(
        'UPDATE mandates SET below = ?, failures = 0, next_at = 0 WHERE account = ?',
        1_000_000_000,
        account.id,
      );
      const swept = rig.sweep().catch(() => undefined);
      // Each turn is killed one step later, as far as the database tells of steps.
      await until(async () => {
        const rows = await rig.sql<{ state: string; payment: string | null; bought: string | null }>(
          `SELECT d.state, d.payment, p.state AS bought FROM draws d LEFT JOIN purchases p ON p.request_id = d.id
           WHERE d.account = ? ORDER BY d.rowid`,
          account.id,
        );
        const row = rows[turn + 1];
        const steps = [row, row?.payment, row?.bought, row?.bought === 'granted', row?.state === 'paid'];
        return steps.filter(Boolean).length > turn;
      });
      await rig.restart();
      await swept;
      await rig.sql('UPDATE mandates SET below = 1 WHERE account = ?', account.id);
      await rig.sql("UPDATE draws SET at = at - 61000 WHERE state = 'begun'");
      await rig.sweep();
      await settled(account);
    }
    const [{ paid } = { paid: 0 }] = await rig.sql<{ paid: number }>(
      "SELECT coalesce(sum(amount), 0) AS paid FROM draws WHERE account = ? AND state = 'paid'",
      account.id,
    );
    // The first draw was made when the mandate was signed.
    expect(await spent()).toBe(Number(paid) - 5_000_000);
    expect((await balanceOf(rig, account)) - before).toBe(Number(paid) - 5_000_000);
    // What was killed before it was signed may have failed, and takes nothing; all others are paid.
    expect(Number(paid)).toBeGreaterThanOrEqual(25_000_000);
    expect(await ledgerIsSound(rig)).toBe(true);
    expect((await rig.payments.payments.ledger.reconcile()).differences).toEqual([]);
  });
});
