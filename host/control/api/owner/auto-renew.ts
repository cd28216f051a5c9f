/**
 * `/_admin/renew/:slug/auto`: the owner's wallet signs once, and the deployment renews until a date; or the owner names
 * prepaid credit, and it renews until one of both sides ends it.
 */
import { z } from 'zod';
import type { AutoRenewal } from '../../../registry/schema/deployments.ts';
import { formatUsd, micro, parseUsd } from '../../../shared/money.ts';
import { Problem } from '../../../shared/problem.ts';
import type { RenewalSource } from '../../auto-renewer.ts';
import { readJson } from '../../body.ts';
import type { ControlDeps } from '../../deps.ts';
import { type Endpoint, json, jsonBody } from '../../endpoint.ts';
import { iso } from '../../metadata.ts';
import { living, notOwner, requireOwner } from '../../ownership.ts';

const DAY_MS = 86_400_000;
const LONGEST_DAYS = 366;
/** A period of the mandate is shorter than a term by this: a renewal that was late must not meet the next one in it. */
const SLACK_DAYS = 5;
const MOST_BYTES = 4_096;
/** Of a renewal from credit, which has no end of its own. */
const NEVER = 8_640_000_000_000_000;
const PATH = '/_admin/renew/:slug/auto';

const body = z.strictObject({
  until: z.iso
    .datetime()
    .optional()
    .describe(`Until when it renews, such as 2027-10-31T00:00:00Z; default: a year, at most ${LONGEST_DAYS} days.`),
});

const creditBody = z.strictObject({
  credit: z
    .string()
    .regex(/^rnw_[\w-]{43}$/)
    .describe('Token by which an account of the pay platform lets this deployment renew: POST /pay/me/renewals.'),
});

export function autoRenewEndpoints(deps: ControlDeps): Endpoint[] {
  const { config, payments, deployments, clock, renewalCredit } = deps;
  async function set(tenant: string, source: RenewalSource, until: number): Promise<Response> {
    if (!(await deployments.autoRenewals.set({ tenant, mandate: JSON.stringify(source), until }, clock.now())))
      throw new Problem('in_progress', 'A renewal from credit is under way; try again in a minute.');
    return json(view(await deployments.autoRenewals.of(tenant)));
  }
  const mandates = () => {
    if (payments.mandates) return payments.mandates;
    throw new Problem('not_implemented', 'Mandates need Tempo, which this host is not on; renew by hand.');
  };
  const responses = {
    200: 'How it renews: wallet, key, amount, until; null where it does not.',
    403: 'Another wallet owns the slug.',
    404: 'There is no such deployment.',
    410: 'The deployment was decommissioned.',
  };
  return [
    {
      method: 'POST',
      path: PATH,
      access: 'owner',
      summary: 'Renew by itself from now on',
      description:
        'Answers 402 with a subscription of MPP (`intent="subscription"`), which the owner’s wallet signs once; nothing is ' +
        `paid then. About three days before each expiry ${config.prices.renew} USD are taken by it for one more term. ` +
        'The wallet’s key keeps the amount and the end on the chain. In place of a mandate before.',
      body: jsonBody(body, false),
      responses,
      async handle({ request, context, params: { slug = '' } }) {
        const deployment = await living(deps, slug);
        if (deployment.builtin) throw new Problem('conflict', `${slug} comes with the host and never expires.`);
        const scope = `renew:${slug}`;
        if (/^payment /i.test(request.headers.get('authorization') ?? '')) {
          const mandate = await mandates().accept(request.headers, scope);
          if (mandate.payer !== deployment.owner) throw notOwner(deployment, mandate.payer);
          return set(deployment.tenant, mandate, mandate.until);
        }
        const { until } = await readJson(request, body, { maxBytes: MOST_BYTES, caller: context.clientIp });
        return mandates().ask({
          scope,
          amount: parseUsd(config.prices.renew),
          days: Math.max(1, config.slugs.termDays - SLACK_DAYS),
          until: untilOf(until),
          description: `Renew ${slug} for ${config.slugs.termDays} days, again and again (owner only)`,
        });
      },
    },
    {
      method: 'PUT',
      path: PATH,
      access: 'owner',
      summary: 'Renew from prepaid credit from now on',
      description:
        `About three days before each expiry ${config.prices.renew} USD of the account’s credit are taken for one more ` +
        'term, once for each. In place of a mandate before. DELETE ends it, and so does the account.',
      body: jsonBody(creditBody),
      responses,
      async handle(call) {
        const owned = await requireOwner(deps, call, `PUT /_admin/renew/${call.params.slug}/auto`);
        if ('response' in owned) return owned.response;
        const { slug, tenant, builtin } = owned.deployment;
        if (builtin) throw new Problem('conflict', `${slug} comes with the host and never expires.`);
        const { request, context } = call;
        const { credit: token } = await readJson(request, creditBody, {
          maxBytes: MOST_BYTES,
          caller: context.clientIp,
        });
        if (!renewalCredit) throw new Problem('not_implemented', 'This host has no prepaid credit; renew by hand.');
        const credit = await renewalCredit.check(token, slug);
        if (parseUsd(credit.mostUsd) < parseUsd(config.prices.renew))
          throw new Problem(
            'conflict',
            `A term costs ${config.prices.renew} USD; the account allows ${credit.mostUsd}.`,
          );
        return set(tenant, { credit }, NEVER);
      },
    },
    {
      method: 'GET',
      path: PATH,
      access: 'owner',
      summary: 'Whether it renews by itself',
      description: 'With what the last attempt failed for, where it failed.',
      responses,
      async handle(call) {
        const owned = await requireOwner(deps, call, `GET /_admin/renew/${call.params.slug}/auto`);
        if ('response' in owned) return owned.response;
        return json(view(await deployments.autoRenewals.of(owned.deployment.tenant)));
      },
    },
    {
      method: 'DELETE',
      path: PATH,
      access: 'owner',
      summary: 'Renew by hand from now on',
      description: 'Nothing is taken any more. The wallet can also revoke the key on its chain.',
      responses,
      async handle(call) {
        const owned = await requireOwner(deps, call, `DELETE /_admin/renew/${call.params.slug}/auto`);
        if ('response' in owned) return owned.response;
        await deployments.autoRenewals.end(owned.deployment.tenant);
        return json(view(undefined));
      },
    },
  ];
}

function view(row: AutoRenewal | undefined) {
  if (!row) return { auto: null };
  const source = JSON.parse(row.mandate) as RenewalSource;
  const failed = row.lastFailure === null ? {} : { lastFailure: row.lastFailure };
  if ('credit' in source) {
    const { account, mostUsd } = source.credit;
    return { auto: { account, amountUsd: mostUsd, ...failed } };
  }
  const { payer, key, amount, until } = source;
  return {
    auto: { wallet: payer, key, amountUsd: formatUsd(micro(BigInt(amount))), until: iso(until), ...failed },
  };
}

/** A signature follows the real time. @throws Problem invalid_field */
function untilOf(text: string | undefined): number {
  const now = Date.now();
  const until = Math.floor((text === undefined ? now + 365 * DAY_MS : Date.parse(text)) / 1_000) * 1_000;
  if (until > now + DAY_MS && until <= now + LONGEST_DAYS * DAY_MS) return until;
  const detail = `is from tomorrow to ${LONGEST_DAYS} days from now`;
  throw new Problem('invalid_field', `until ${detail}.`, { errors: [{ pointer: '/until', detail }] });
}
