import { createSIWxPayload, encodeSIWxHeader } from '@x402/extensions/sign-in-with-x';
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts';
import { afterEach, expect, it, vi } from 'vitest';
import { type Asking, SignInWithX } from '../../host/payments/sign-in-with-x.ts';

const wallet = privateKeyToAccount(generatePrivateKey());
const used = new Set<string>();
const make = (more: object = {}) =>
  new SignInWithX({
    publicUrl: 'https://api.example.com',
    chainId: 8453,
    key: 'key',
    claim: async (name) => !used.has(name) && used.add(name).has(name),
    ...more,
  });
const ASKING: Asking = {
  caller: '203.0.113.1',
  scope: 'DELETE mine',
  description: 'Prove that you own mine',
  method: 'DELETE',
  path: '/_admin/mine?a=1',
  digest: `sha-256=${Buffer.alloc(32, 7).toString('base64')}`,
};
const sign = make();

// biome-ignore lint/suspicious/noExplicitAny: the wire, as clients read it
type Wire = any;
function announced(by = sign, asking = ASKING): Wire {
  const { 'payment-required': header = '' } = by.announce(asking, undefined);
  const { extensions, accepts } = JSON.parse(Buffer.from(header, 'base64').toString());
  expect(accepts).toEqual([]);
  const { info, supportedChains } = extensions['sign-in-with-x'];
  return { ...info, ...supportedChains[0] };
}
/** The stock client's answer. */
async function answered(info: Wire, url = 'https://api.example.com/_admin/mine', by = wallet): Promise<Wire> {
  return createSIWxPayload(info, by, url);
}
async function verdict(payload: Wire, asking = ASKING, by = sign): Promise<string> {
  const headers = new Headers({ 'sign-in-with-x': typeof payload === 'string' ? payload : encodeSIWxHeader(payload) });
  try {
    const signed = await by.verify(headers, asking);
    await signed?.claim();
    return signed?.payer.address ?? 'none';
  } catch (error) {
    return (error as { code?: string }).code ?? String(error);
  }
}
const address = wallet.address.toLowerCase();
afterEach(() => void vi.useRealTimers());

it('takes what the stock client signed, once', async () => {
  const payload = await answered(announced());
  expect(await Promise.all([verdict(payload), verdict(payload)]).then((all) => all.sort())).toEqual(
    [address, 'payment_invalid'].sort(),
  );
  expect(await verdict(payload, ASKING, make())).toBe('payment_invalid');
  expect(await sign.verify(new Headers(), ASKING)).toBeUndefined();
});

it('is asked for in the name of this host, whatever the path looks like', async () => {
  for (const path of ['//evil.example/_admin/mine', '/\\evil.example', '/_admin/mine'])
    expect(announced(sign, { ...ASKING, path })).toMatchObject({
      domain: 'api.example.com',
      uri: `https://api.example.com${path}`,
    });
  await expect(answered(announced(), 'https://evil.example/')).rejects.toThrow(/origin/);
});

it.each<[string, Partial<Asking>]>([
  ['another network', { caller: '203.0.113.2' }],
  ['another scope', { scope: 'DELETE theirs' }],
  ['another method', { method: 'PUT' }],
  ['another path', { path: '/_admin/mine' }],
  ['another body', { digest: `sha-256=${Buffer.alloc(32, 8).toString('base64')}` }],
  ['no body', { digest: undefined }],
])('refuses it for %s', async (_what, other) => {
  expect(await verdict(await answered(announced()), { ...ASKING, ...other })).toBe('payment_invalid');
});

it('refuses what was changed, what others signed or asked for, and what is over', async () => {
  const payload = await answered(announced());
  const other = privateKeyToAccount(generatePrivateKey());
  const changed: Wire[] = [
    { ...payload, address: other.address },
    { ...payload, chainId: 'eip155:1' },
    { ...payload, requestId: undefined },
    { ...payload, requestId: '0'.repeat(64) },
    { ...payload, nonce: payload.nonce.replace(/^./, '1') },
    { ...payload, nonce: '' },
    { ...payload, signature: `0x${'1'.repeat(130)}` },
    { ...payload, signature: '0x' },
    { ...payload, signature: await other.signMessage({ message: payload.nonce }) },
    await answered(announced(make({ key: 'another' }))),
    await answered(announced(make({ chainId: 1 }))),
  ];
  for (const [at, one] of changed.entries()) expect(await verdict(one), String(at)).toBe('payment_invalid');
  vi.useFakeTimers({ now: Date.now() + 5 * 60_000, toFake: ['Date'] });
  expect(await verdict(payload)).toBe('payment_invalid');
});

it('refuses any text that is no answer', async () => {
  const text = encodeSIWxHeader(await answered(announced()));
  const garbage = [
    '',
    'x',
    'e30=',
    'bnVsbA==',
    'W10=',
    'A'.repeat(9_000),
    ...Array.from({ length: 40 }, (_, at) => text.slice(0, at * 10 + 1)),
  ];
  for (const one of garbage) expect(await verdict(one)).toBe('payment_invalid');
});
