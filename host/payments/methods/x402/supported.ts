/**
 * What a facilitator elsewhere settles on a network, by its answer to `/supported`: schemes, each with the accounts that
 * payers may sign for, of which the first is offered. That is the one of the last answer while it is among them.
 */
import { z } from 'zod';
import { SOLANA_ADDRESS } from '../../../shared/config.ts';
import type { X402Client } from '../../network/types.ts';

export const supportedAnswer = z.object({
  kinds: z.array(
    z.object({
      x402Version: z.number(),
      scheme: z.string(),
      network: z.string(),
      extra: z.object({ facilitatorAddress: z.unknown(), feePayer: z.unknown() }).partial().nullish(),
    }),
  ),
  signers: z.record(z.string(), z.array(z.unknown())).nullish().catch(undefined),
});

type Answer = z.infer<typeof supportedAnswer>;

export type Scheme = 'exact' | 'upto';

/** On EVM chains, payers by `exact` sign for no account. */
export type Supported = ReadonlyMap<Scheme, readonly string[]>;

/**
 * @param said of one network, by x402 v2
 * @param known what it said last
 * @throws Error whose message holds no secret
 */
export type ReadSchemes = (said: Required<Answer>, known: Supported | undefined) => Promise<Supported>;

const address = z.string().regex(/^0x[0-9a-fA-F]{40}$/) as unknown as z.ZodType<`0x${string}`>;
const solanaAddress = z.string().regex(SOLANA_ADDRESS);

export function evmSchemes(getClient: () => Pick<X402Client, 'getCode'>): ReadSchemes {
  return async ({ kinds }, known) => {
    const found = new Map<Scheme, readonly string[]>();
    if (kinds.some(({ scheme }) => scheme === 'exact')) found.set('exact', []);
    const accounts = kinds.flatMap(({ scheme, extra }) => {
      const account = address.safeParse(extra?.facilitatorAddress);
      return scheme === 'upto' && account.success ? account.data : [];
    });
    const account = accounts.find((one) => one === known?.get('upto')?.[0]) ?? accounts[0];
    if (account === undefined) return found;
    // What an account with code sends has no form by which a payment is found on the chain again.
    const code = await getClient()
      .getCode({ address: account })
      .catch(() => {
        // The cause quotes the node's URL, which may hold a key.
        throw new Error('the node at payments.x402.rpcUrl does not say what account it sends from');
      });
    if (code === undefined || code === '0x') found.set('upto', [account]);
    return found;
  };
}

/** Whoever pays the fees: another node of the host may have been told of another signer. */
export const solanaSchemes: ReadSchemes = async ({ kinds, signers }, known) => {
  const named = kinds.flatMap(({ scheme, extra }) => (scheme === 'exact' ? [extra?.feePayer] : []));
  const all = [...named, ...(signers?.['solana:*'] ?? [])].flatMap((one) => {
    const account = solanaAddress.safeParse(one);
    return account.success ? account.data : [];
  });
  const before = known?.get('exact')?.[0];
  const first = all.find((one) => one === before) ?? named[0];
  if (!all.some((one) => one === first)) return new Map();
  const others = [...new Set(all)].filter((one) => one !== first).sort();
  return new Map([['exact', [first as string, ...others]]]);
};
