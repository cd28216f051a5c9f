/**
 * What the payment behind a request is good for, and how to say that it is not enough.
 */
import { paidRoute } from './catalogue.ts';
import type { Caller } from './engines/engine.ts';
import { SpeechFailure } from './failure.ts';
import { formatUsd, type MicroUsd, parseUsd } from './money.ts';

/**
 * The host's toll says in `x-max-price` what is held for a metered call, whatever the caller wrote there.
 * @returns micro-USD
 */
export function heldFor(request: Request, path: string): MicroUsd {
  const held = request.headers.get('x-max-price');
  if (held === null) return paidRoute(path).price;
  try {
    return parseUsd(held);
  } catch {
    throw new SpeechFailure('INVALID_BODY', 'The header x-max-price takes a decimal amount in USD such as 0.05.');
  }
}

/** As the host says. Calls that other services of this host make share its loopback address: they are told apart by payer. */
export function callerOf({ headers }: Request): Caller {
  const address = headers.get('cf-connecting-ip') ?? undefined;
  const isOwn = address === undefined || /^(?:127\.|::1$|::ffff:127\.)/.test(address);
  return { payer: headers.get('x-payer') ?? undefined, address: isOwn ? undefined : address };
}

/** @param what such as `The audio is 812.000 s long` */
export function tooExpensive(what: string, needed: MicroUsd, held: MicroUsd): SpeechFailure {
  const amount = formatUsd(needed);
  return new SpeechFailure(
    'PAYMENT_LIMIT_EXCEEDED',
    `${what} and costs ${amount} USD, but only ${formatUsd(held)} USD is held for this call. Nothing was charged; send x-max-price: ${amount} to hold more, or send less at once.`,
    { extra: { needed_usd: amount, held_usd: formatUsd(held) } },
  );
}
