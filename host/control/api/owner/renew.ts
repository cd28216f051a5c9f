/** POST /_admin/renew/:slug: the owner pays for one more term; also from the expired state. */
import type { CallShape } from '../../../payments/discovery.ts';
import type { Json, PaidOperation } from '../../../payments/types.ts';
import type { Deployment } from '../../../registry/schema/deployments.ts';
import { parseUsd } from '../../../shared/money.ts';
import { Problem } from '../../../shared/problem.ts';
import { SLUG } from '../../../shared/slug.ts';
import type { ControlDeps } from '../../deps.ts';
import type { Endpoint } from '../../endpoint.ts';
import { describe, iso } from '../../metadata.ts';
import { living, notOwner } from '../../ownership.ts';

const OPERATION = 'renew';
const DAY_MS = 86_400_000;
/** Of a description, as indexers call it when they know no slug. */
const PLACEHOLDER = /^(?::\w{1,32}|\{\w{1,32}\})$/;

/** As indexers are told: no body is wanted. */
const CALL: CallShape = { output: { type: 'json', example: { slug: 'hello', state: 'active' } } };

/**
 * What a renewal of this deployment costs and does; the expired tenant's own 402 uses it too.
 * @param expected the expiry that it is for: nothing is taken where that is another one by now
 */
export function renewal(deps: ControlDeps, deployment: Pick<Deployment, 'slug'>, expected?: number): PaidOperation {
  const { config } = deps;
  return {
    name: OPERATION,
    scope: `renew:${deployment.slug}`,
    amount: parseUsd(config.prices.renew),
    description: `Renew ${deployment.slug} for ${config.slugs.termDays} days (owner only)`,
    maxBodyBytes: config.runtime.maxBodyBytes,
    prepare: async (payer) => {
      const current = await living(deps, deployment.slug);
      if (payer.address !== current.owner) throw notOwner(current, payer.address);
      if (expected !== undefined && current.expiresAt !== expected)
        throw new Problem('conflict', 'This deployment was renewed meanwhile. Nothing was charged.');
      return { tenant: current.tenant, ...(expected === undefined ? {} : { expected }) };
    },
  };
}

/**
 * One more term for what was paid. Idempotent by payment.
 * @throws Problem gone | conflict
 */
export async function renewFor(
  { config, clock, deployments, routes, logs, scheduleChanged }: ControlDeps,
  { tenant, expected }: { tenant: string; expected?: number },
  payment: string,
): Promise<Deployment> {
  const term = config.slugs.termDays * DAY_MS;
  const renewed = await deployments.terms.renew(tenant, payment, term, clock.now(), expected);
  await routes.push(renewed.slug);
  scheduleChanged();
  await logs.append(tenant, { kind: 'platform', event: 'renewed', text: `runs until ${iso(renewed.expiresAt)}` });
  return renewed;
}

export function renewEndpoint(deps: ControlDeps): Endpoint {
  const { config, payments } = deps;

  payments.registerCompletion(OPERATION, async (prepared: Json, payment) => {
    const renewed = await renewFor(deps, prepared as { tenant: string; expected?: number }, payment.id);
    return {
      status: 200,
      headers: { 'content-type': 'application/json; charset=utf-8' },
      body: JSON.stringify(await describe(deps, renewed)),
    };
  });

  return {
    method: 'POST',
    path: '/_admin/renew/:slug',
    tool: 'renew',
    access: 'paid',
    price: parseUsd(config.prices.renew),
    summary: `Renew a deployment for ${config.slugs.termDays} days`,
    description:
      `Costs ${config.prices.renew} USD. Only the owner's wallet may pay; any other payer is refused before money moves. ` +
      'The new expiry counts from the later of now and the present expiry. Takes no body; one that is sent is ignored.',
    responses: {
      200: 'Renewed. The metadata of the deployment.',
      403: 'Another wallet owns the slug; nothing was charged.',
      404: 'There is no such deployment; nothing was charged.',
      410: 'The deployment was decommissioned; nothing was charged.',
    },
    // Whether the slug lives is looked up with the payment: an unpaid call gets its 402 first, as everywhere.
    handle: async ({ request, context, params: { slug = '' } }) => {
      if (!SLUG.test(slug) && !PLACEHOLDER.test(slug))
        throw new Problem('not_found', `There is no deployment ${slug}; turnpike list shows those of your wallet.`);
      return await payments.paidOperation(request, context, { ...renewal(deps, { slug }), call: CALL });
    },
  };
}
