/**
 * Has the wallet sign a mandate (a subscription of MPP): a host may take an amount in each period, until a date. Only
 * commands that are about a mandate come here; no payment is ever one.
 */
import { Challenge } from 'mppx';
import { z } from 'zod';
import { formatUsd, micro } from '../../shared/money.ts';
import { Failure } from '../terminal/failure.ts';
import { createCredential } from './credentials.ts';
import { inMicroUsd, type Offer, realmOf } from './offers.ts';
import { type PayableRequest, type PayOptions, paymentRefused, realmMatches, send } from './pay-request.ts';

const requestSchema = z.looseObject({
  amount: z.string().regex(/^\d{1,78}$/),
  currency: z.string().regex(/^0x[0-9a-fA-F]{40}$/),
  recipient: z.string(),
  periodCount: z.string().regex(/^[1-9]\d{0,3}$/),
  periodUnit: z.literal('day'),
  subscriptionExpires: z.iso.datetime(),
  methodDetails: z.looseObject({ chainId: z.number().int().positive() }),
});

interface Asked {
  offer: Extract<Offer, { protocol: 'mpp' }>;
  days: number;
  until: string;
}

/** What the person wants. Where the host asks for more, nothing is signed: not even by `--yes` or `--max-pay`. */
export interface Wish {
  /** Unix time, ms. */
  until: number;
  /** In each period, micro-USD; undefined: what the host takes, as far as the person pays it. */
  most?: bigint;
  /** Shortest period; undefined: as long as the host says. */
  days?: number;
}

/** @param tell what is asked for, before the person is asked. @throws Failure `payment` | `cancelled` | `unreachable` */
export async function signMandate(
  request: PayableRequest,
  options: PayOptions,
  wish: Wish,
  tell: (line: string) => void,
): Promise<Response> {
  const first = await send(request, {}, options.fetch);
  if (first.status !== 402) return first;
  const asked = readMandate(first.headers);
  await first.body?.cancel();
  if (!asked) throw new Failure('payment', 'The host asks for no mandate that this command can sign.');
  const { offer, days, until } = asked;
  const realm = realmOf(offer);
  if (realm === undefined || !realmMatches(realm, request.url))
    throw new Failure('payment', `The mandate is for ${realm}, not for ${request.url.host}.`);
  const asset = options.policy.assets.find(offer.chainId, offer.token);
  if (!asset)
    throw new Failure('payment', `It asks for a token that is not known here (${offer.chainId}:${offer.token}).`);
  const microUsd = inMicroUsd(offer.amount, asset.decimals);
  const usd = formatUsd(micro(microUsd));
  const isMore = microUsd > (wish.most ?? microUsd) || days < (wish.days ?? days) || !(Date.parse(until) <= wish.until);
  if (isMore)
    throw new Failure(
      'payment',
      `The host asks for more than was wanted: ${usd} USD in each ${days} days, until ${until.slice(0, 10)}. Nothing was signed.`,
    );
  const { maxMicroUsd } = options.policy;
  if (maxMicroUsd !== undefined && microUsd > maxMicroUsd)
    throw new Failure('payment', `It is about ${usd} USD, more than the limit of ${formatUsd(micro(maxMicroUsd))}.`);
  tell(`mandate at most ${usd} USD in each ${days} days, until ${until.slice(0, 10)}; nothing is paid now`);
  if (!(await options.approve({ usd, microUsd, offer, symbol: asset.symbol, testMoney: asset.test })))
    throw new Failure('cancelled', 'Nothing was signed.');
  const response = await send(request, await createCredential(offer, options.signer), options.fetch);
  if (response.status === 402) throw await paymentRefused(response);
  return response;
}

function readMandate(headers: Headers): Asked | undefined {
  if (!headers.has('www-authenticate')) return undefined;
  let challenges: Challenge.Challenge[];
  try {
    challenges = Challenge.fromHeadersList(headers);
  } catch {
    return undefined;
  }
  const challenge = challenges.find(({ method, intent }) => method === 'tempo' && intent === 'subscription');
  const read = requestSchema.safeParse(challenge?.request);
  if (!challenge || !read.success) return undefined;
  const { amount, currency, recipient, periodCount, subscriptionExpires, methodDetails } = read.data;
  return {
    offer: {
      protocol: 'mpp',
      intent: 'charge',
      challenge,
      chainId: methodDetails.chainId,
      token: currency.toLowerCase(),
      amount: BigInt(amount),
      recipient,
    },
    days: Number(periodCount),
    until: subscriptionExpires,
  };
}
