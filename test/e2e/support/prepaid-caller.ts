/** A caller of a tenant of the real host that pays from prepaid credit, through the pay platform. */
import { expect } from 'vitest';
import { jsonPost, mppFetch } from './callers.ts';
import type { TestHost } from './host.ts';
import { bearer, type TestAccount } from './pay-callers.ts';
import { until } from './until.ts';

/** Price of one call, micro-USD. */
export const PREPAID_PRICE = 3_000n;
const BOUGHT = 50_000_000n;
/** Who left hears by then what became of the call, where the host was not killed. */
const SOON_MS = 10_000;
/** The platform takes a call whose process died for abandoned after four minutes. */
const ABANDONED_MS = 420_000;

/** What a tenant's handler answers first where it is behind the platform; otherwise undefined. */
export const PREPAID_HANDLER = `
const behindPlatform = (request) => {
  if (new URL(request.url).pathname === '/internal/pay-events') return new Response(null, { status: 204 });
  if (request.headers.get('x-pay-usage') !== 'none') return undefined;
  return Response.json({ serviceSlug: 'shop', usage: [{ meterSlug: 'look', quantity: 1 }] }, { status: 402 });
};`;

/** What is asked of the handler. */
export interface Wanted {
  id: string;
  want: 'ok' | 'fail' | 'once';
  /** The caller leaves after so many ms; undefined: it waits. */
  leavesAfter: number | undefined;
  repeats: boolean;
}

export interface PrepaidCaller {
  /** @returns what came of it; `later`: its host died, and what became of it is asked when all is over */
  call(wanted: Wanted): Promise<'charged' | 'given back' | 'later'>;
  /** Asks for what was put off. @returns how many of them were charged */
  rest(): Promise<number>;
  /** Credit that is gone, micro-USD, when the platform's books sum to zero. */
  spent(): Promise<bigint>;
}

/** Puts the tenant `shop` behind the platform, and buys credit. @param host the one that runs now */
export async function openPrepaid(host: () => TestHost, wallet: number): Promise<PrepaidCaller> {
  await until(async () => (await fetch(`${host().url}/pay/healthz`)).ok);
  const set = async (path: string, body: object) =>
    expect((await host().operator('PUT', `/pay/services/shop${path}`, body)).text).not.toContain('"code"');
  await set('', { origin: '{app_url}/shop', name: 'The shop' });
  await set('/meters/look', { priceUsd: '0.003', description: 'One look' });
  await set('/plans/default', { minimumUsd: '50.00' });
  const answer = await fetch(`${host().url}/pay/accounts/anonymous`, { method: 'POST' });
  const { accountId, credential } = (await answer.json()) as { accountId: string; credential: string };
  const account: TestAccount = { id: accountId, credential };
  const bought = await mppFetch(host().network, wallet)(
    `${host().url}/pay/shop/plans/default/purchase`,
    jsonPost({ amountUsd: '50.00' }, bearer(account)),
  );
  expect([bought.status, await bought.text()]).toEqual([201, expect.any(String)]);

  const putOff: Wanted[] = [];
  const send = async ({ id, want, leavesAfter }: Wanted, signal?: AbortSignal) => {
    const headers = { ...bearer(account), 'x-pay-up-to': '0.003', 'idempotency-key': id };
    const body = JSON.stringify({ id, want, charge: '', delay: leavesAfter === undefined ? 0 : 40 });
    const answered = await fetch(`${host().url}/pay/shop/prepaid`, {
      method: 'POST',
      headers,
      body,
      ...(signal && { signal }),
    });
    return { status: answered.status, text: await answered.text() };
  };
  /** Undefined: no answer came, or one of the gateway, which knows no outcome yet. */
  const outcome = async (wanted: Wanted, signal?: AbortSignal) => {
    const said = await send(wanted, signal).catch(() => undefined);
    return said?.text.includes('"code"') ? undefined : said;
  };
  const cameOf = ({ id, want }: Wanted, { status, text }: { status: number; text: string }) => {
    expect([id, status, text]).toEqual(want === 'fail' ? [id, 500, 'no'] : [id, 200, JSON.stringify({ id })]);
    return want === 'fail' ? 'given back' : 'charged';
  };
  return {
    async call(wanted) {
      const { leavesAfter, repeats } = wanted;
      let said = await outcome(wanted, leavesAfter === undefined ? undefined : AbortSignal.timeout(leavesAfter));
      said ??= await until(() => outcome(wanted), wanted.id, SOON_MS).catch(() => undefined);
      if (!said) {
        putOff.push(wanted);
        return 'later';
      }
      const came = cameOf(wanted, said);
      if (repeats && came === 'charged') expect(await send(wanted)).toEqual(said);
      return came;
    },
    async rest() {
      let charged = 0;
      for (const wanted of putOff)
        if (cameOf(wanted, await until(() => outcome(wanted), wanted.id, ABANDONED_MS)) === 'charged') charged += 1;
      return charged;
    },
    async spent() {
      const { json } = await host().operator('GET', '/pay/ledger');
      expect(json).toMatchObject({ ok: true });
      const { balanceUsd } = (await (await fetch(`${host().url}/pay/me`, { headers: bearer(account) })).json()) as {
        balanceUsd: string;
      };
      return BOUGHT - BigInt(Math.round(Number(balanceUsd) * 1_000_000));
    },
  };
}
