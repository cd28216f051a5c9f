/** Callers of the pay platform: paying from credit by hand, and what an origin must check, written from its README. */
import { createHash, randomUUID } from 'node:crypto';
import { ExactEvmScheme } from '@x402/evm/exact/client';
import { wrapFetchWithPaymentFromConfig } from '@x402/fetch';
import { verifySignature, webcrypto } from 'http-message-sig';
import type { Hex } from 'viem';
import { privateKeyToAccount } from 'viem/accounts';
import type { Network } from '../../../host/payments/network/index.ts';
import { type Arrived, OPERATOR_KEY, type PayRig, SERVICE_KEY } from './pay-rig.ts';

export interface TestAccount {
  id: string;
  credential: string;
}

export const bearer = ({ credential }: Pick<TestAccount, 'credential'>) => ({ authorization: `Bearer ${credential}` });

export async function anonymous(rig: PayRig): Promise<TestAccount> {
  const answer = await fetch(`${rig.pay}/accounts/anonymous`, { method: 'POST' });
  const { accountId, credential } = (await answer.json()) as { accountId: string; credential: string };
  return { id: accountId, credential };
}

/** Grants by the operator. */
export async function give(rig: PayRig, account: TestAccount, amountUsd: string, more: object = {}): Promise<void> {
  const answer = await operator(rig, 'POST', '/grants', { accountId: account.id, amountUsd, ...more });
  if (!answer.ok) throw new Error(await answer.text());
}

export function operator(rig: PayRig, method: string, path: string, body?: object): Promise<Response> {
  return fetch(`${rig.pay}/operator${path}`, {
    method,
    headers: { authorization: `Bearer ${OPERATOR_KEY}`, 'content-type': 'application/json' },
    ...(body ? { body: JSON.stringify(body) } : {}),
  });
}

export function internal(rig: PayRig, path: string, body?: object, base = rig.pay): Promise<Response> {
  return fetch(`${base}/internal${path}`, {
    method: body ? 'POST' : 'GET',
    headers: { authorization: `Bearer ${SERVICE_KEY}`, 'content-type': 'application/json' },
    ...(body ? { body: JSON.stringify(body) } : {}),
  });
}

export async function balanceOf(rig: PayRig, account: TestAccount): Promise<number> {
  const { balanceMicroUsd } = (await (await internal(rig, `/accounts/${account.id}`)).json()) as {
    balanceMicroUsd: string;
  };
  return Number(balanceMicroUsd);
}

/** The whole ledger: sums to zero, and no balance differs from its entries. */
export async function ledgerIsSound(rig: PayRig): Promise<boolean> {
  return ((await (await operator(rig, 'GET', '/ledger')).json()) as { ok: boolean }).ok;
}

/** The parameters of the credit challenge among the WWW-Authenticate of a 402. */
export function creditChallenge(answer: Response): Record<string, string> | undefined {
  const header = answer.headers.get('www-authenticate') ?? '';
  const all = header.split(/,\s*(?=Payment )/).find((one) => one.includes('method="credit"'));
  if (!all) return undefined;
  return Object.fromEntries([...all.matchAll(/(\w+)="([^"]*)"/g)].map(([, name, value]) => [name, value]));
}

export function creditPayment(
  challenge: Record<string, string> | undefined,
  { credential }: Pick<TestAccount, 'credential'>,
) {
  const payment = { challenge, payload: { type: 'credit', credential } };
  return { authorization: `Payment ${Buffer.from(JSON.stringify(payment)).toString('base64url')}` };
}

/** Pays one call from credit: the 402 first, then the same request with the payment. */
export async function payFromCredit(
  url: string,
  account: TestAccount,
  init: { method?: string; body?: string; headers?: Record<string, string> } = {},
): Promise<Response> {
  const unpaid = await fetch(url, { ...init, headers: { ...init.headers, ...bearer(account) } });
  if (unpaid.status !== 402) return unpaid;
  await unpaid.body?.cancel();
  return fetch(url, { ...init, headers: { ...init.headers, ...creditPayment(creditChallenge(unpaid), account) } });
}

/** Pays one call from credit by one request, whatever it costs up to a dollar. */
export function payAtOnce(url: string, account: TestAccount): Promise<Response> {
  return fetch(url, { headers: { ...bearer(account), 'x-pay-up-to': '1.00', 'idempotency-key': randomUUID() } });
}

/** What a stock x402 client would send for the address, without sending it: the value of `payment-signature`. */
export async function signX402(network: Network, key: Hex, url: string): Promise<string> {
  const { x402 } = network;
  if (!x402) throw new Error('no x402 network');
  let signature = '';
  const capture = async (input: string | URL | Request, init?: RequestInit) => {
    const request = new Request(input, init);
    const sent = request.headers.get('payment-signature');
    if (sent === null) return fetch(request);
    signature = sent;
    return new Response('not sent');
  };
  const paying = wrapFetchWithPaymentFromConfig(
    capture as typeof fetch,
    {
      schemes: [{ network: 'eip155:*', client: new ExactEvmScheme(privateKeyToAccount(key)) }],
      spendControls: {
        allowedAssets: [{ network: x402.network, asset: x402.token, maxAmountPerPayment: '100000000' }],
      },
    } as never,
  );
  await paying(url);
  return signature;
}

/** What README.md asks of an origin, but for the nonces. @throws where the forward is not the platform's */
export async function verifyForward(rig: PayRig, { method, url, headers, body }: Arrived) {
  const directory = await fetch(`${rig.pay}/.well-known/http-message-signatures-directory`);
  const { keys } = (await directory.json()) as { keys: { kid: string; kty: string; crv: string; x: string }[] };
  const digest = createHash('sha256').update(body).digest('base64');
  if (headers['content-digest'] !== `sha-256=:${digest}:`) throw new Error('the body is another one');
  return verifySignature(
    {
      kind: 'request',
      method,
      targetUri: url,
      fields: Object.entries(headers).map(([name, value]) => ({ name, value })),
    },
    {
      label: 'pay',
      policy: {
        algorithms: ['ed25519'],
        requiredComponents: [
          '@method',
          '@target-uri',
          'content-digest',
          'x-pay-account',
          'x-pay-request-id',
          'x-pay-usage',
        ],
        requiredParameters: ['created', 'expires', 'nonce', 'keyid', 'tag'],
        maxAge: 60,
        clockSkew: 5,
      },
      async resolveVerifier({ parameters }) {
        const jwk = keys.find(({ kid }) => kid === parameters.keyid);
        if (!jwk) throw new Error('unknown key');
        return webcrypto.verifier(await crypto.subtle.importKey('jwk', jwk, 'Ed25519', false, ['verify']));
      },
    },
  );
}
