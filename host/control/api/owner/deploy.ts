/** POST /_admin/deploy: pay, and a new slug is live; the payer becomes its owner. */

import type { CallShape } from '../../../payments/discovery.ts';
import type { Json, Payer } from '../../../payments/types.ts';
import { type NewDeployment, newTenantId } from '../../../registry/deployments.ts';
import type { Asker } from '../../../runtime/deploy/deploy-turns.ts';
import { type Money, parseUsd } from '../../../shared/money.ts';
import { fieldProblem } from '../../body.ts';
import { checkSlug, type DeploymentParser, deployBody, deploymentBodyBytes } from '../../deployment-input.ts';
import type { ControlDeps } from '../../deps.ts';
import type { Endpoint } from '../../endpoint.ts';
import { describe } from '../../metadata.ts';
import { checkServices } from '../../service-calls.ts';
import { checkDatabases, checkNames, checkPayTo, newSettings } from '../../settings.ts';
import { liveText } from '../../versions.ts';

const OPERATION = 'deploy';
const DAY_MS = 86_400_000;
/** A slug is held this long for a call that is being paid: longer than any settlement takes. */
const CLAIM_MS = 10 * 60_000;

/** What is kept with the payment while it is being worked on. */
interface Prepared extends NewDeployment {
  /** Work that was done before payment; absent in payments of earlier hosts. */
  unpaid?: { asker: Asker; spentMs: number };
}

/** As indexers are told: /openapi.json has the other fields. */
const CALL: CallShape = {
  input: {
    body: {
      type: 'object',
      properties: { slug: { type: 'string' }, code: { type: 'string', description: 'JavaScript or TypeScript' } },
      required: ['slug', 'code'],
    },
    example: { body: { slug: 'hello', code: 'export default { fetch: () => new Response("hi") }' } },
  },
  output: { type: 'json', example: { slug: 'hello', state: 'active' } },
};

export function deployEndpoint(deps: ControlDeps, parse: DeploymentParser): Endpoint {
  const { config, clock, deployments, payments, pipeline, routes, secrets, log } = deps;
  const price: Money = parseUsd(config.prices.deploy);

  async function prepare(request: Request, body: Uint8Array, payer: Payer, address: string): Promise<Prepared> {
    const input = await parse(body, request.headers.get('content-type') ?? 'application/json');
    const slug = checkSlug(input.slug, config.slugs.reserved);
    if (input.secretChanges) throw fieldProblem('/secretChanges', 'is for updates; use secrets');
    if (input.assets) throw fieldProblem('/assets', 'is for updates: files are sent once there is a deployment');
    if (input.preview) throw fieldProblem('/preview', 'is for updates: first there is a deployment');
    const settings = newSettings(input, payer.address, clock.now());
    checkPayTo(settings, deps.payments);
    checkNames(settings, Object.keys(input.secrets ?? {}));
    checkDatabases(settings, input.secrets ?? {});
    await checkServices(deps, { slug, owner: payer.address, bindings: settings.bindings });
    const tenant = newTenantId();
    const now = clock.now();
    await deployments.claims.take(slug, tenant, payer.address, now, CLAIM_MS);
    try {
      await routes.beginDeploy(slug);
      const asker: Asker = { kind: 'stranger', wallet: payer.address, address };
      const { spentMs, ...code } = await pipeline.accept(input, {
        ...settings,
        ...(input.secrets ? { secrets: input.secrets } : {}),
        asker,
      });
      return {
        tenant,
        slug,
        owner: payer.address,
        ownerDid: payer.did,
        code,
        settings,
        secrets: secrets
          .seal(tenant, input.secrets ?? {})
          .map(({ name, keyId, sealed }) => ({ name, keyId, sealed: sealed.toString('base64') })),
        termMs: config.slugs.termDays * DAY_MS,
        unpaid: { asker, spentMs },
      };
    } catch (error) {
      await giveUp(slug, tenant);
      throw error;
    }
  }

  async function giveUp(slug: string, tenant: string): Promise<void> {
    await deployments.claims.release(slug, tenant);
    await routes.giveUp(slug);
  }

  async function abandon(prepared: Json): Promise<void> {
    const { slug, tenant, code, unpaid } = prepared as unknown as Prepared;
    if (unpaid) pipeline.wasted(unpaid.asker, unpaid.spentMs);
    await giveUp(slug, tenant);
    await deps.releaseCode(code.digest);
  }

  payments.registerCompletion(
    OPERATION,
    async (prepared) => {
      const { unpaid: _, ...paid } = prepared as unknown as Prepared;
      const deployment = await deployments.create(paid, clock.now());
      await routes.push(deployment.slug);
      deps.scheduleChanged();
      await deps.logs.append(deployment.tenant, { kind: 'platform', event: 'deployed', text: liveText(deployment) });
      log.info({ slug: deployment.slug, tenant: deployment.tenant }, 'deployed');
      const body = JSON.stringify(await describe(deps, deployment));
      // At the end: what fails is tried again, and others may hold the same code.
      await deps.releaseCode(deployment.digest);
      return {
        status: 201,
        headers: {
          'content-type': 'application/json; charset=utf-8',
          location: `${deps.publicUrl}/${deployment.slug}/`,
        },
        body,
      };
    },
    abandon,
  );

  return {
    method: 'POST',
    path: '/_admin/deploy',
    tool: 'deploy',
    access: 'paid',
    price,
    summary: 'Deploy a handler to a new slug',
    description:
      `Costs ${config.prices.deploy} USD and lasts ${config.slugs.termDays} days. Call it without payment to get the 402 with the ways to pay; ` +
      'retry with the credential. Slug, code and settings are checked before the payment is settled: what is refused costs nothing. ' +
      'The paying wallet owns the slug. Answers the metadata of the deployment.',
    body: deployBody(config.runtime),
    responses: {
      201: 'Live. The metadata of the deployment, with its url.',
      400: 'A field is not acceptable; `errors` points at it.',
      409: 'The slug is taken or reserved.',
      413: 'The code is too large.',
      422: 'The code was refused; `errors` has file, line, column and reason.',
      429: 'Much of your code was refused lately, or several of your deploys wait; `retry-after` says when to try again.',
      503: 'Too many deploys wait; `retry-after` says when to try again.',
    },
    handle: ({ request, context }) =>
      payments.paidOperation(request, context, {
        name: OPERATION,
        scope: OPERATION,
        amount: price,
        description: `Deploy a handler for ${config.slugs.termDays} days`,
        maxBodyBytes: deploymentBodyBytes(config.runtime),
        call: CALL,
        prepare: async (payer, body) => (await prepare(request, body, payer, context.clientIp)) as unknown as Json,
        abandon,
      }),
  };
}
