/**
 * Reads the offers of a 402, in both protocols, and decides which to pay. Pure: nothing is signed or sent here.
 * This is the boundary towards the server that asks for money; nothing it says is believed beyond its form.
 */
import { Challenge } from 'mppx';
import { z } from 'zod';
import type { Asset, Assets } from './assets.ts';

export type Protocol = 'mpp' | 'x402';

/** One way to pay, as it was offered. */
export type Offer = {
  chainId: number;
  token: string;
  /** The most that is taken, in the token's smallest unit. */
  amount: bigint;
  recipient: string | undefined;
} & (
  | { protocol: 'mpp'; intent: 'charge'; challenge: Challenge.Challenge }
  | { protocol: 'x402'; intent: 'exact' | 'upto'; requirements: X402Requirements; required: X402Required }
);

const atomic = z.string().regex(/^\d{1,78}$/);

const requirementsSchema = z.looseObject({
  scheme: z.string(),
  network: z.string(),
  asset: z.string(),
  amount: atomic,
  payTo: z.string(),
});
const requiredSchema = z.looseObject({ x402Version: z.literal(2), accepts: z.array(z.unknown()) });

export type X402Requirements = z.infer<typeof requirementsSchema>;
export type X402Required = z.infer<typeof requiredSchema>;

const chargeSchema = z.looseObject({
  amount: atomic,
  currency: z.string().regex(/^0x[0-9a-fA-F]{40}$/),
  recipient: z.string().optional(),
  methodDetails: z.looseObject({ chainId: z.number().int().positive() }),
});

/** Every offer that the command could pay; what it does not understand is left out. */
export function readOffers(headers: Headers): Offer[] {
  return [...readMpp(headers), ...readX402(headers)];
}

function readMpp(headers: Headers): Offer[] {
  if (!headers.has('www-authenticate')) return [];
  let challenges: Challenge.Challenge[];
  try {
    challenges = Challenge.fromHeadersList(headers);
  } catch {
    return [];
  }
  return challenges.flatMap((challenge): Offer[] => {
    if (challenge.method !== 'tempo' || challenge.intent !== 'charge') return [];
    const request = chargeSchema.safeParse(challenge.request);
    if (!request.success) return [];
    const { amount, currency, recipient, methodDetails } = request.data;
    return [
      {
        protocol: 'mpp',
        intent: 'charge',
        challenge,
        chainId: methodDetails.chainId,
        token: currency.toLowerCase(),
        amount: BigInt(amount),
        recipient,
      },
    ];
  });
}

function readX402(headers: Headers): Offer[] {
  const header = headers.get('payment-required');
  if (header === null) return [];
  let document: unknown;
  try {
    document = JSON.parse(Buffer.from(header, 'base64').toString('utf8'));
  } catch {
    return [];
  }
  const required = requiredSchema.safeParse(document);
  if (!required.success) return [];
  return required.data.accepts.flatMap((one): Offer[] => {
    const requirements = requirementsSchema.safeParse(one);
    if (!requirements.success) return [];
    const { scheme, network, asset, amount, payTo } = requirements.data;
    const chainId = /^eip155:(\d{1,12})$/.exec(network)?.[1];
    if (chainId === undefined || (scheme !== 'exact' && scheme !== 'upto')) return [];
    return [
      {
        protocol: 'x402',
        intent: scheme,
        requirements: requirements.data,
        required: required.data,
        chainId: Number(chainId),
        token: asset.toLowerCase(),
        amount: BigInt(amount),
        recipient: payTo,
      },
    ];
  });
}

export interface PaymentPolicy {
  /** Only this protocol; undefined: either, MPP first. */
  protocol: Protocol | undefined;
  /** Most that may be taken, in micro-USD; undefined: the person is asked. */
  maxMicroUsd: bigint | undefined;
  assets: Assets;
}

export type Choice =
  | { kind: 'pay'; offer: Offer; asset: Asset; microUsd: bigint }
  | { kind: 'over'; cheapest: bigint }
  | { kind: 'unknown-assets'; offers: Offer[] }
  | { kind: 'proof' }
  | { kind: 'none' };

/**
 * Picks the cheapest offer that the policy allows; among equals MPP, and what charges exactly, come first. A challenge
 * over nothing is never answered: anybody can pass on the one of a host, and would be its owner there with the proof.
 */
export function chooseOffer(offers: Offer[], policy: PaymentPolicy): Choice {
  const accepted = offers.filter(({ protocol }) => policy.protocol === undefined || protocol === policy.protocol);
  const spoken = accepted.filter((offer) => !isProof(offer));
  if (spoken.length === 0) return { kind: accepted.length === 0 ? 'none' : 'proof' };
  const known = spoken.flatMap((offer) => {
    const asset = policy.assets.find(offer.chainId, offer.token);
    return asset ? [{ offer, asset, microUsd: inMicroUsd(offer.amount, asset.decimals) }] : [];
  });
  if (known.length === 0) return { kind: 'unknown-assets', offers: spoken };
  const rank = { charge: 0, exact: 1, upto: 2 };
  known.sort((a, b) => {
    if (a.microUsd !== b.microUsd) return a.microUsd < b.microUsd ? -1 : 1;
    return rank[a.offer.intent] - rank[b.offer.intent];
  });
  const [best] = known;
  if (!best) return { kind: 'none' };
  if (policy.maxMicroUsd !== undefined && best.microUsd > policy.maxMicroUsd) {
    return { kind: 'over', cheapest: best.microUsd };
  }
  return { kind: 'pay', ...best };
}

/** Rounded up: a cap must never be passed by a fraction. */
export function inMicroUsd(amount: bigint, decimals: number): bigint {
  if (decimals <= 6) return amount * 10n ** BigInt(6 - decimals);
  const unit = 10n ** BigInt(decimals - 6);
  return (amount + unit - 1n) / unit;
}

/** The host that an offer says it is of; undefined where it says nothing. */
export function realmOf(offer: Offer): string | undefined {
  if (offer.protocol === 'mpp') return offer.challenge.realm;
  const { resource } = offer.required as { resource?: { url?: unknown } };
  return typeof resource?.url === 'string' ? (URL.parse(resource.url)?.host ?? resource.url) : undefined;
}

/** The zero-amount challenge that asks for a proof, if there is one. */
export function findProof(offers: Offer[]): MppOffer | undefined {
  return offers.find(isProof);
}

type MppOffer = Extract<Offer, { protocol: 'mpp' }>;

function isProof(offer: Offer): offer is MppOffer {
  return offer.protocol === 'mpp' && offer.amount === 0n;
}
