/**
 * What a facilitator elsewhere settles on a network, by its answer to `/supported`: schemes, each with the account that
 * payers sign for. Several accounts may take turns there; the one that was found last is kept while it is one of them,
 * because payers have signed for it.
 */
import type { Hex } from 'viem';
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

/** The account of each scheme: on EVM chains, payers by `exact` name none. */
export interface Schemes {
  exact: string | undefined;
  upto: Hex;
}

export type Supported = ReadonlyMap<keyof Schemes, string | undefined>;

/**
 * @param said of one network, by x402 v2
 * @param known what it said last
 * @throws Error whose message holds no secret
 */
export type ReadSchemes = (said: Required<Answer>, known: Supported | undefined) => Promise<Supported>;

const address = z.string().regex(/^0x[0-9a-fA-F]{40}$/) as unknown as z.ZodType<Hex>;
const solanaAddress = z.string().regex(SOLANA_ADDRESS);

export function evmSchemes(getClient: () => Pick<X402Client, 'getCode'>): ReadSchemes {
  return async ({ kinds }, known) => {
    const found = new Map<keyof Schemes, string | undefined>();
    if (kinds.some(({ scheme }) => scheme === 'exact')) found.set('exact', undefined);
    const accounts = kinds.flatMap(({ scheme, extra }) => {
      const account = address.safeParse(extra?.facilitatorAddress);
      return scheme === 'upto' && account.success ? account.data : [];
    });
    const account = accounts.find((one) => one === known?.get('upto')) ?? accounts[0];
    if (account === undefined) return found;
    // What an account with code sends has no form by which a payment is found on the chain again.
    const code = await getClient()
      .getCode({ address: account })
      .catch(() => {
        // The cause quotes the node's URL, which may hold a key.
        throw new Error('the node at payments.x402.rpcUrl does not say what account it sends from');
      });
    if (code === undefined || code === '0x') found.set('upto', account);
    return found;
  };
}

/** Its account pays the fees, and any of its signers may. */
export const solanaSchemes: ReadSchemes = async ({ kinds, signers }, known) => {
  const named = kinds.flatMap(({ scheme, extra }) => {
    const account = solanaAddress.safeParse(extra?.feePayer);
    return scheme === 'exact' && account.success ? account.data : [];
  });
  const [first] = named;
  if (first === undefined) return new Map();
  const before = known?.get('exact');
  const isStillOne = before !== undefined && [...named, ...(signers?.['solana:*'] ?? [])].includes(before);
  return new Map([['exact', isStillOne ? before : first]]);
};
