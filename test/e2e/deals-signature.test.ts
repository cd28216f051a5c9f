/**
 * Who may call deals: only the platform's gateway, by its signature. The test's own key is published beside the
 * platform's, as in rotation, and the tenant on the real host is called directly.
 */
import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import {
  digestOf,
  newSigningPair,
  type Parts,
  type SignedRequest,
  type SigningPair,
  signRequest,
} from '../deals/support/signing.ts';
import {
  ANY_WATCH,
  dealsAreUp,
  HOUR_MS,
  MINUTE_MS,
  readDatabase,
  readWatches,
  register,
  startDealsHost,
  systemSocket,
} from './support/deals-host.ts';
import type { TestHost } from './support/host.ts';
import { bearer } from './support/pay-callers.ts';
import { until } from './support/until.ts';

const CREATED = '[{"meterSlug":"watch_created","quantity":1}]';

let host: TestHost;
let ours: SigningPair;

beforeAll(async () => {
  host = await startDealsHost();
  ours = await publish('ours');
  // Unknown keys are looked for at most once in ten seconds.
  await until(async () => ((await send(await signed())) === 402 ? true : undefined));
});
afterAll(() => host?.stop());

/** A key that the directory shows and that does not sign yet. */
async function publish(kid: string): Promise<SigningPair> {
  const pair = await newSigningPair(kid);
  await fetch(`${host.url}/pay/.well-known/http-message-signatures-directory`);
  const from = Date.now() + 2 * HOUR_MS;
  await readDatabase(
    host,
    'pay',
    `INSERT INTO signing_keys (kid, public_x, sealed_private, signs_from, signs_until)
     VALUES ('${kid}', '${pair.jwk.x}', '', ${from}, ${from + HOUR_MS})`,
  );
  return pair;
}

/** An unpaid creation of a watch, which is answered 402 where it is believed. */
const signed = (parts: Partial<Parts> = {}) =>
  signRequest({
    key: ours,
    // The address that the host publishes, whatever name it is reached by.
    appUrl: `http://localhost:${new URL(host.url).port}`,
    path: '/v1/watches',
    body: JSON.stringify(ANY_WATCH),
    usage: 'none',
    ...parts,
  });
const send = async ({ method, path, headers, body }: SignedRequest) =>
  (await fetch(`${host.url}/deals${path}`, { method, headers, body })).status;

describe('a signature', () => {
  test.each([-5, 0, 5])('of a clock that is %i s off is good', async (skew) => {
    expect(await send(await signed({ skew }))).toBe(402);
  });
  test.each([-65, 65])('of a clock that is %i s off is not', async (skew) => {
    expect(await send(await signed({ skew }))).toBe(401);
  });

  test('is good once: of twenty at once one passes, and none in the process that comes after', async () => {
    const request = await signed();
    const all = await Promise.all(Array.from({ length: 20 }, () => send(request)));
    expect(all.toSorted()).toEqual([...Array.from({ length: 19 }, () => 401), 402].toSorted());
    const later = await signed();
    const before = await systemSocket(host, 'deals');
    await host.advance(MINUTE_MS);
    await dealsAreUp(host);
    expect(await systemSocket(host, 'deals')).not.toBe(before);
    expect(await send(request)).toBe(401);
    expect(await send(later)).toBe(402);
    expect(await send(later)).toBe(401);
  });

  test('is for what was signed alone', async () => {
    const body = JSON.stringify({ ...ANY_WATCH, every_s: 900 });
    const one = () => signed({ nonce: randomUUID() });
    // The digest's header is right for the body that was signed.
    expect(await send({ ...(await one()), body })).toBe(401);
    const swapped = await one();
    expect(await send({ ...swapped, body, headers: { ...swapped.headers, 'content-digest': digestOf(body) } })).toBe(
      401,
    );
    expect(await send({ ...(await one()), path: '/v1/watches?more=1' })).toBe(401);
    const { headers, ...rest } = await one();
    for (const forged of [{ 'x-pay-account': 'acc_2' }, { 'x-pay-usage': CREATED }, { 'x-pay-request-id': 'req_2' }])
      expect(await send({ ...rest, headers: { ...headers, ...forged } })).toBe(401);
    // None of these has used the nonce up.
    expect(await send({ ...rest, headers })).toBe(402);
  });

  test('of another key is nothing, also under a known name', async () => {
    const stranger = await newSigningPair('stranger');
    expect(await send(await signed({ key: stranger }))).toBe(401);
    expect(await send(await signed({ key: { ...stranger, kid: ours.kid } }))).toBe(401);
  });
});

test('an account is what was signed: a header of the caller opens nothing', async () => {
  const account = await register(host);
  const forged = { 'x-pay-account': account.id, 'x-pay-usage': CREATED };
  const body = JSON.stringify(ANY_WATCH);
  for (const address of [`${host.url}/deals/v1/watches`, `${host.url}/pay/deals/v1/watches`]) {
    const answer = await fetch(address, { method: 'POST', headers: forged, body });
    expect(answer.status).toBe(address.includes('/pay/') ? 402 : 401);
    expect((await fetch(address, { headers: forged })).status).toBe(address.includes('/pay/') ? 403 : 401);
  }
  expect((await readWatches(host, account)).watches).toEqual([]);
  // What the platform says is believed.
  expect(await send(await signed({ account: account.id, usage: CREATED, requestId: 'req_signed' }))).toBe(201);
  expect((await readWatches(host, account)).watches).toHaveLength(1);
});

test('keys in rotation are all good, and one that left the directory is not', async () => {
  const next = await publish('next');
  await until(async () => ((await send(await signed({ key: next }))) === 402 ? true : undefined));
  expect(await send(await signed())).toBe(402);
  expect((await fetch(`${host.url}/pay/deals/v1/watches`, { headers: bearer(await register(host)) })).status).toBe(200);
  await readDatabase(host, 'pay', "DELETE FROM signing_keys WHERE kid = 'next'");
  // Another process asks anew.
  await host.advance(MINUTE_MS);
  await dealsAreUp(host);
  expect(await send(await signed({ key: next }))).toBe(401);
  expect(await send(await signed())).toBe(402);
});
