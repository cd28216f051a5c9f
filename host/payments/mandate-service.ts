/**
 * Mandates in `env.PAYMENTS`: a tenant has a wallet sign once, keeps what comes of it, and draws within its limits by
 * payments that are verified and captured like all others.
 */
import { createHash } from 'node:crypto';
import type { Hono } from 'hono';
import { z } from 'zod';
import type { Money } from '../shared/money.ts';
import { Problem } from '../shared/problem.ts';
import type { Sealed } from './sealed.ts';
import type { Mandate, Mandates } from './types.ts';

const DAY_MS = 86_400_000;
const LONGEST_DAYS = 366;

export interface SealedMandate {
  tenant: string;
  mandate: Mandate;
}

export interface MandateParts {
  /** Undefined where no network of this host has mandates. */
  mandates: Mandates | undefined;
  sealed: Sealed<SealedMandate>;
  realm(): string;
  /** Body of `/mandate` and what payments have in common. */
  fields: {
    usd: z.ZodType<Money>;
    description: z.ZodType<string | undefined>;
    metadata: z.ZodType<Record<string, string> | undefined>;
    bind: z.ZodType<string | undefined>;
  };
  read<T>(request: Request, schema: z.ZodType<T>): Promise<T>;
  /** The 402 of an ordinary payment. @param body of `/challenge` */
  challenge(body: unknown): Response;
}

export function mandateRoutes(
  app: Hono,
  { tenant, slug }: { tenant: string; slug: string },
  parts: MandateParts,
): void {
  const { sealed, realm, fields, read } = parts;
  const scope = `mandate:${tenant}`;
  const asked = z.strictObject({
    amount: fields.usd,
    days: z.number().int().min(1).max(LONGEST_DAYS),
    until: z.iso
      .datetime()
      .transform((text) => Math.floor(Date.parse(text) / 1_000) * 1_000)
      .refine((until) => until > Date.now() + DAY_MS, 'is at least a day from now')
      .refine((until) => until < Date.now() + LONGEST_DAYS * DAY_MS, `is at most ${LONGEST_DAYS} days from now`),
    description: fields.description,
    metadata: fields.metadata,
    bind: fields.bind,
  });
  const accepted = z.strictObject({ bind: fields.bind });
  const drawn = z.strictObject({ mandate: z.string().max(8_300), challenge: z.record(z.string(), z.unknown()) });
  const mandatesOf = (): Mandates => {
    if (parts.mandates) return parts.mandates;
    throw new Problem('not_implemented', 'Mandates need Tempo; see payments.network.');
  };

  app.post('/mandate', async (c) => {
    const { amount, days, until, description, metadata, bind } = await read(c.req.raw, asked);
    const meta = {
      ...Object.fromEntries(Object.entries(metadata ?? {}).map(([name, value]) => [`m.${name}`, value])),
      ...(bind === undefined ? {} : { bind: digest(bind) }),
    };
    const about = { amount, days, until, scope, meta, description: description ?? `A mandate for ${slug}` };
    const challenge = mandatesOf().challenge(about, realm());
    const text =
      'A wallet signs this mandate once, by an MPP client that has subscriptions. Send the request again with it.';
    return new Problem('payment_required', text, { headers: { 'www-authenticate': challenge } }).toResponse();
  });

  app.post('/mandate/accept', async (c) => {
    const { bind } = await read(c.req.raw, accepted);
    const { mandate, meta } = await mandatesOf().accept(c.req.raw.headers, { scope, realm: realm() });
    if (meta.bind !== (bind === undefined ? undefined : digest(bind)))
      throw new Problem(
        'payment_invalid',
        'The mandate was signed for something else; sign the challenge of this request.',
      );
    const { payer, key, days, until } = mandate;
    return Response.json({
      mandate: sealed.seal({ tenant, mandate }),
      payer,
      key,
      days,
      until: new Date(until).toISOString(),
      metadata: Object.fromEntries(
        Object.entries(meta).flatMap(([name, value]) => (name.startsWith('m.') ? [[name.slice(2), value]] : [])),
      ),
    });
  });

  app.post('/mandate/pay', async (c) => {
    const { mandate: token, challenge } = await read(c.req.raw, drawn);
    const opened = sealed.open(token);
    if (opened?.tenant !== tenant) throw new Problem('not_found', 'There is no such mandate.');
    const wanted = z.object({ amount: fields.usd }).safeParse(challenge);
    if (!wanted.success) throw new Problem('invalid_field', '/challenge/amount is an amount in USD such as "0.05".');
    const { headers } = parts.challenge(challenge);
    return Response.json({ authorization: await mandatesOf().pay(opened.mandate, wanted.data.amount, headers) });
  });
}

function digest(text: string): string {
  return createHash('sha256').update(text).digest('base64url');
}
