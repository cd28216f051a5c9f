/**
 * A program: the facilitator of x402's own packages behind HTTP. It prints its port. Its faults are
 * set by `POST /fault`; `GET /asked` tells what it was asked. Environment: FACILITATOR = JSON of `Settings`.
 */
import { type HttpBindings, serve } from '@hono/node-server';
import { createKeyPairSignerFromPrivateKeyBytes } from '@solana/kit';
import { x402Facilitator } from '@x402/core/facilitator';
import type { PaymentPayload, PaymentRequirements } from '@x402/core/types';
import { toFacilitatorEvmSigner } from '@x402/evm';
import { ExactEvmScheme } from '@x402/evm/exact/facilitator';
import { UptoEvmScheme } from '@x402/evm/upto/facilitator';
import { toFacilitatorSvmSigner } from '@x402/svm';
import { ExactSvmScheme } from '@x402/svm/exact/facilitator';
import { type Context, Hono } from 'hono';
import type { Hex } from 'viem';
import { privateKeyToAccount } from 'viem/accounts';
import { localEvmChain } from '../../../host/payments/network/chains.ts';
import { x402Client } from '../../../host/payments/network/clients.ts';

export interface Settings {
  /** Of Solana the seed of the key. */
  key: Hex;
  rpcUrl: string;
  network: `eip155:${number}` | `solana:${string}`;
}

/**
 * What a call does. Before the work: `hang`, `error`, `busy`, `refuse`, `poor`, `fail`, `lie`, `garbage`, `huge`, `redirect`,
 * `unauthorized`. After it: `lost` (the connection breaks), `silent` (no answer), `pending`, `denied` (says that it failed),
 * `misnamed` (names another transaction),
 * `late` (says that the signature is wrong, and then settles).
 * `<kind> of <wallet>` is for the payments of one wallet; `lie` and `misnamed of <signature>` name that transaction.
 */
export interface Fault {
  path: 'verify' | 'settle' | 'supported';
  kind: string;
}

const { key, rpcUrl, network } = JSON.parse(process.env.FACILITATOR ?? '{}') as Settings;
const isSolana = network.startsWith('solana:');
const facilitator = new x402Facilitator();
if (isSolana) {
  const keys = await createKeyPairSignerFromPrivateKeyBytes(Buffer.from(key.slice(2), 'hex'));
  const signer = toFacilitatorSvmSigner(keys as never, { defaultRpcUrl: rpcUrl });
  facilitator.register(network, new ExactSvmScheme(signer));
} else {
  const account = privateKeyToAccount(key);
  const signer = toFacilitatorEvmSigner({
    ...x402Client(localEvmChain(1337, rpcUrl), account),
    address: account.address,
  } as never);
  facilitator.register(network, new ExactEvmScheme(signer));
  facilitator.register(network, new UptoEvmScheme(signer));
}

const faults = new Map<string, string>();
const asked: { path: string; headers: Record<string, unknown>; body: unknown }[] = [];
/** Longer than the host looks at the chain after an answer. */
const LATE_MS = 500;
const INVALID = isSolana ? 'invalid_exact_svm_payload_signature' : 'invalid_exact_evm_signature';
/** A transaction that there may be or not, in the form of its network. */
const OTHER = isSolana ? '5'.repeat(88) : `0x${'ab'.repeat(32)}`;
const never = new Promise<never>(() => {});

const app = new Hono<{ Bindings: HttpBindings }>();
app.post('/fault', async (c) => {
  const { path, kind } = await c.req.json<Fault>();
  faults.set(path, kind);
  return c.json({});
});
app.get('/asked', (c) => c.json(asked.splice(0)));
app.get('/supported', (c) => answer(c, 'supported', async () => facilitator.getSupported()));
app.post('/verify', (c) => answer(c, 'verify', (sent) => facilitator.verify(...sent)));
app.post('/settle', (c) => answer(c, 'settle', (sent) => facilitator.settle(...sent)));
serve({ fetch: app.fetch, port: 0, hostname: '127.0.0.1' }, ({ port }) => console.log(port));

type Sent = [payload: PaymentPayload, requirements: PaymentRequirements];

async function answer(
  c: Context<{ Bindings: HttpBindings }>,
  path: Fault['path'],
  work: (sent: Sent) => Promise<object>,
): Promise<Response> {
  const body = c.req.method === 'POST' ? await c.req.json() : {};
  asked.push({ path, headers: c.req.header(), body });
  const failed = { success: false, isValid: false, transaction: '', network };
  const [kind, of = ''] = (faults.get(path) ?? '').split(' of ');
  const fault =
    kind === 'lie' || kind === 'misnamed' || JSON.stringify(body).toLowerCase().includes(of.toLowerCase()) ? kind : '';
  switch (fault) {
    case 'hang':
      return never;
    case 'error':
      return c.html('<h1>Internal Server Error</h1>', 500);
    case 'busy':
      return c.json({ errorType: 'rate_limit_exceeded' }, 429);
    case 'unauthorized':
      return c.json({ errorType: 'unauthorized' }, 401);
    case 'refuse':
      return c.json({ ...failed, invalidReason: 'insufficient_funds', errorReason: INVALID }, 400);
    case 'poor':
      return c.json({ ...failed, errorReason: 'insufficient_funds' });
    case 'fail':
      return c.json({ ...failed, errorReason: 'invalid_exact_evm_transaction_failed' });
    case 'lie':
      return c.json({ success: true, isValid: true, transaction: of || OTHER, network });
    case 'garbage':
      return c.json({ success: 'yes', isValid: 1, kinds: { a: 1 } });
    case 'huge':
      return c.json({ success: true, x: 'x'.repeat(4_000_000) });
    case 'redirect':
      return c.redirect('/asked', 307);
  }
  if (fault === 'late') {
    setTimeout(() => void work([body.paymentPayload, body.paymentRequirements]), LATE_MS);
    return c.json({ ...failed, errorReason: INVALID });
  }
  const done = await work([body.paymentPayload, body.paymentRequirements]);
  switch (fault) {
    case 'lost':
      c.env.incoming.socket.destroy();
      return never;
    case 'silent':
      return never;
    case 'pending':
      return c.json({ ...done, success: false, errorReason: 'settlement_pending' });
    case 'misnamed':
      return c.json({ ...done, transaction: of });
    case 'denied':
      return c.json({ ...failed, errorReason: 'insufficient_funds' });
  }
  return c.json(done);
}
