/**
 * Pays a request from prepaid credit of a pay platform: its 402 carries a challenge of method "credit", which is
 * answered with the account's credential. The decoded amount is what is checked; nothing else the server says counts.
 */
import { Challenge, Credential } from 'mppx';
import { z } from 'zod';
import { formatUsd, micro } from '../../shared/money.ts';
import { Failure } from '../terminal/failure.ts';
import { type PayableRequest, paymentRefused, send } from './pay-request.ts';

export interface CreditOptions {
  /** The account's credential; it is sent to the request's own origin only. */
  credential: string;
  /** Most that may be taken, in micro-USD; undefined: the person is asked. */
  maxMicroUsd: bigint | undefined;
  /** Called before the credit is promised; answers whether to go on. */
  approve(price: { usd: string; balanceUsd: string }): Promise<boolean>;
  fetch: typeof fetch;
}

export interface PaidFromCredit {
  protocol: 'credit';
  /** USD. */
  amount: string;
}

const requestSchema = z.looseObject({
  amount: z.string().regex(/^\d{1,15}$/),
  currency: z.literal('USD'),
  decimals: z.literal(6),
  balance: z
    .string()
    .regex(/^\d{1,15}$/)
    .nullable(),
  creditPayUrl: z.string(),
});

/** @throws Failure `payment` | `cancelled` | `unreachable` */
export async function payFromCredit(
  request: PayableRequest,
  options: CreditOptions,
): Promise<{ response: Response; paid: PaidFromCredit | undefined }> {
  const identity = { authorization: `Bearer ${options.credential}` };
  const first = await send(request, identity, options.fetch);
  if (first.status !== 402) return { response: first, paid: undefined };
  const challenge = readChallenge(first.headers);
  const asked = requestSchema.safeParse(challenge?.request);
  if (!challenge || !asked.success) {
    throw new Failure(
      'payment',
      'It does not sell from credit to this account. Leave --credit out to pay from the wallet.',
    );
  }
  await first.body?.cancel();
  const { amount, balance, creditPayUrl } = asked.data;
  const usd = formatUsd(micro(BigInt(amount)));
  const balanceUsd = formatUsd(micro(BigInt(balance ?? '0')));
  if (options.maxMicroUsd !== undefined && BigInt(amount) > options.maxMicroUsd) {
    throw new Failure(
      'payment',
      `It costs ${usd} USD, more than the limit of ${formatUsd(micro(options.maxMicroUsd))}.`,
    );
  }
  if (BigInt(balance ?? '0') < BigInt(amount)) {
    throw new Failure(
      'payment',
      `It costs ${usd} USD and the credit is ${balanceUsd} USD. Buy some (turnpike account topup 5.00) at ${creditPayUrl}.`,
    );
  }
  if (!(await options.approve({ usd, balanceUsd }))) throw new Failure('cancelled', 'Nothing was paid.');
  const payload = { type: 'credit', credential: options.credential };
  const authorization = Credential.serialize(Credential.from({ challenge, payload } as never));
  const response = await send(request, { authorization }, options.fetch);
  if (response.status === 402) throw await paymentRefused(response);
  return { response, paid: { protocol: 'credit', amount: usd } };
}

function readChallenge(headers: Headers): Challenge.Challenge | undefined {
  if (!headers.has('www-authenticate')) return undefined;
  try {
    return Challenge.fromHeadersList(headers).find(({ method, intent }) => method === 'credit' && intent === 'charge');
  } catch {
    return undefined;
  }
}
