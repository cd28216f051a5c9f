/** Whether a deployment may have the bindings that it asks for, and call another one: when a binding is made, and at each call. */
import { boundBindings } from '../bindings/index.ts';
import { type Called, calledBy, mayCall } from '../bindings/services/access.ts';
import type { Deployments } from '../registry/deployments.ts';
import type { Deployment } from '../registry/schema/deployments.ts';
import type { CodeStore } from '../runtime/code-store.ts';
import type { Clock } from '../shared/clock.ts';
import type { Config } from '../shared/config.ts';
import type { BindingSet, TenantId } from '../shared/contracts.ts';
import { Problem } from '../shared/problem.ts';
import { fieldProblem } from './body.ts';
import { suspension } from './suspension.ts';

type Known = Pick<Deployments, 'bySlug' | 'byTenant'>;

/**
 * For a call that is under way. The toll of paid routes is for callers from outside: whom the owner has let in pays
 * nothing, as on Cloudflare.
 * @throws Problem not_found | forbidden | suspended | gone
 */
export async function checkCall(
  deployments: Known,
  clock: Pick<Clock, 'now'>,
  caller: TenantId,
  { service, entrypoint }: Called,
): Promise<{ tenant: TenantId; related: boolean }> {
  const [from, to] = await Promise.all([deployments.byTenant(caller), deployments.bySlug(service)]);
  if (!from) throw new Problem('not_found', 'The caller is not deployed any more.');
  if (!to)
    throw new Problem('not_found', `There is no deployment ${service} on this host; deploy it, or change the binding.`);
  if (to.state === 'decommissioned') throw new Problem('gone', `${service} was decommissioned; change the binding.`);
  if (!mayCall(from, to, entrypoint)) throw notOpened(from.owner, from.slug, service, entrypoint);
  const suspended = suspension(to);
  if (suspended) throw suspended;
  if (to.state !== 'active' || (!to.builtin && to.expiresAt <= clock.now()))
    throw new Problem('gone', `${service} has expired; its owner can renew it.`);
  return { tenant: to.tenant, related: from.owner === to.owner };
}

/**
 * For a deployment that asks for bindings: nothing is paid for one that could not work.
 * @throws Problem invalid_field
 */
export async function checkServices(
  { config, deployments, codeStore }: { config: Config; deployments: Known; codeStore: Pick<CodeStore, 'get'> },
  { slug, owner, bindings }: { slug: string; owner: string; bindings: BindingSet },
): Promise<void> {
  const bound = boundBindings(bindings);
  for (const { binding, name } of bound) {
    const missing = binding.missing?.(config);
    if (missing !== undefined) throw fieldProblem(`/bindings/${binding.key}/${name}`, missing);
  }
  const tails = bound.filter(({ binding }) => binding.key === 'tails');
  for (const { name, settings } of tails)
    await checkTail(deployments, { slug, owner }, String(settings.service), `/bindings/tails/${name}/service`);
  for (const { name, service, entrypoint } of calledBy(bindings)) {
    const at = `/bindings/services/${name}`;
    if (service === slug)
      throw fieldProblem(`${at}/service`, `is ${slug} itself; leave it out to bind an entrypoint of its own`);
    const callee = await deployments.bySlug(service);
    if (!callee || callee.state === 'decommissioned')
      throw fieldProblem(`${at}/service`, `names ${service}, which is not deployed on this host; deploy that first`);
    if (!mayCall({ slug, owner: owner.toLowerCase() }, callee, entrypoint))
      throw fieldProblem(`${at}/service`, notOpened(owner.toLowerCase(), slug, service, entrypoint).message);
    if (entrypoint !== undefined && !(await exportsOf(codeStore, callee)).includes(entrypoint))
      throw fieldProblem(
        `${at}/entrypoint`,
        `names ${entrypoint}, which the code of ${service} does not export as an entrypoint; if it does, deploy ${service} again first`,
      );
  }
}

/** Traces tell what callers send: nobody but the owner gets them. */
async function checkTail(
  deployments: Known,
  from: { slug: string; owner: string },
  service: string,
  at: string,
): Promise<void> {
  if (service === from.slug)
    throw fieldProblem(at, `is ${service} itself; name another deployment, whose tail() gets the traces`);
  const consumer = await deployments.bySlug(service);
  if (!consumer || consumer.state === 'decommissioned')
    throw fieldProblem(at, `names ${service}, which is not deployed on this host; deploy that first`);
  if (consumer.owner !== from.owner.toLowerCase())
    throw fieldProblem(at, `${service} belongs to another owner; traces go to deployments of your own alone`);
  if (!consumer.handlers.includes('tail'))
    throw fieldProblem(at, `names ${service}, whose code exports no tail(); if it does, deploy ${service} again first`);
}

async function exportsOf(codeStore: Pick<CodeStore, 'get'>, { digest }: Deployment): Promise<string[]> {
  return (await codeStore.get(digest)).entrypoints ?? [];
}

function notOpened(owner: string, slug: string, service: string, entrypoint: string | undefined): Problem {
  const settings = JSON.stringify({ ...(entrypoint === undefined ? {} : { entrypoint }), open: [`${owner}/${slug}`] });
  return new Problem(
    'forbidden',
    `${service} belongs to another owner, who has not opened ${entrypoint ?? 'it'} to ${slug}; that owner can, with {"services": {"OPEN": ${settings}}} in the bindings of ${service}`,
  );
}
