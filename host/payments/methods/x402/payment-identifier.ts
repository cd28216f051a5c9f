/**
 * x402's extension `payment-identifier` (x402 specification, specs/extensions/payment_identifier.md): the payer names
 * what it buys, so that a retry that signs anew is not charged again. It is this host's Idempotency-Key in another place.
 */
import { z } from 'zod';
import { Problem } from '../../../shared/problem.ts';

const NAME = 'payment-identifier';
const id = { type: 'string', minLength: 16, maxLength: 128, pattern: '^[a-zA-Z0-9_-]+$' };

/** The member of a 402's `extensions`: a payer may name its payment, and need not. */
export const PAYMENT_IDENTIFIER = {
  [NAME]: {
    info: { required: false },
    schema: {
      $schema: 'https://json-schema.org/draft/2020-12/schema',
      type: 'object',
      properties: { required: { type: 'boolean' }, id },
      required: ['required'],
    },
  },
};

const named = z.object({
  info: z.object({ id: z.string().min(id.minLength).max(id.maxLength).regex(new RegExp(id.pattern)).optional() }),
});

/**
 * @param extensions of a payment
 * @returns undefined where the payer named none
 * @throws Problem `payment_invalid`
 */
export function readPaymentIdentifier(extensions: Record<string, unknown> | undefined): string | undefined {
  const given = extensions?.[NAME];
  if (given === undefined) return undefined;
  const parsed = named.safeParse(given);
  if (parsed.success) return parsed.data.info.id;
  throw new Problem(
    'payment_invalid',
    `extensions["${NAME}"].info.id takes 16 to 128 letters, digits, "-" and "_". Sign a payment that has such an id, or none.`,
  );
}
