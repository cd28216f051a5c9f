/**
 * Who may do what with a slug: the living deployment is looked up first, then the caller proves to be its owner by a
 * zero-amount credential, by an owner token of POST /_admin/session, or by a deploy key that may do what is asked for.
 */
import type { Payer } from '../payments/types.ts';
import type { DeployKey } from '../registry/schema/deploy-keys.ts';
import type { Deployment } from '../registry/schema/deployments.ts';
import type { Asker } from '../runtime/deploy/deploy-turns.ts';
import { blockedWallet } from '../shared/blocked-wallet.ts';
import { Problem } from '../shared/problem.ts';
import { keyLabel, presentedKey } from './deploy-keys.ts';
import type { ControlDeps } from './deps.ts';
import type { Call } from './endpoint.ts';
import { suspension } from './suspension.ts';

/** `key`: with which the owner is represented; undefined: the wallet itself. `isSession`: by what a browser holds. */
export type Owned =
  | { deployment: Deployment; payer: Payer; key?: DeployKey; isSession?: true }
  | { response: Response };

/**
 * @param changes whether the call changes what the deployment runs or where it answers
 * @throws Problem not_found | gone | suspended | blocked | not_owner | unauthorized | forbidden | rate_limited
 */
export async function requireOwner(
  deps: ControlDeps,
  call: Call,
  scope: string,
  { changes = false } = {},
): Promise<Owned> {
  const deployment = await living(deps, call.params.slug ?? '');
  if (changes) assertChangeable(deps, deployment);
  const given = presentedKey(call.request);
  if (given !== undefined) {
    const key = await deps.keys.present(given, call.context.clientIp, call.keyActions ?? [], deployment);
    return { deployment, payer: { address: key.owner as Payer['address'], did: deployment.ownerDid }, key };
  }
  const bearer = bearerOf(call.request);
  if (bearer !== undefined) {
    const verified = await deps.payments.ownerTokens.verify(deployment.slug, bearer);
    if (!verified) throw badToken();
    const { isSession, ...payer } = verified;
    if (payer.address !== deployment.owner) throw notOwner(deployment, payer.address);
    return { deployment, payer, ...(isSession ? { isSession } : {}) };
  }
  const result = await deps.payments.proveOwner(call.request, call.context, {
    scope,
    expectedOwner: deployment.owner as Payer['address'],
    description: `Prove that you own ${deployment.slug}`,
  });
  if ('response' in result) return result;
  if (result.payer.address !== deployment.owner) throw notOwner(deployment, result.payer.address);
  return { deployment, payer: result.payer };
}

/**
 * The wallet that calls, by a proof or by a session. @param scope of the proof
 * @throws Problem unauthorized | forbidden
 */
export async function requireWallet(
  { payments }: Pick<ControlDeps, 'payments'>,
  { request, context }: Call,
  proof: { scope: string; description: string },
): Promise<{ payer: Payer } | { response: Response }> {
  const bearer = bearerOf(request);
  if (bearer === undefined) return await payments.proveOwner(request, context, proof);
  const read = await payments.ownerTokens.read(bearer);
  if (!read) throw badToken();
  if (read.slug !== null)
    throw new Problem('forbidden', `This token is for ${read.slug} alone; this takes the wallet, or a session of it.`);
  return { payer: read.payer };
}

export function bearerOf({ headers }: Request): string | undefined {
  return /^Bearer (\S+)$/i.exec(headers.get('authorization') ?? '')?.[1];
}

export function badToken(): Problem {
  return new Problem(
    'unauthorized',
    'The owner token is invalid or expired; get a new one at POST /_admin/session/<slug>, or sign in again.',
  );
}

/** The deployment of a slug that is not decommissioned. @throws Problem not_found | gone */
export async function living(deps: Pick<ControlDeps, 'deployments'>, slug: string): Promise<Deployment> {
  const deployment = await deps.deployments.bySlug(slug);
  if (!deployment) throw noDeployment(slug);
  if (deployment.state === 'decommissioned')
    throw new Problem('gone', `${slug} was decommissioned; deploy it again to use it.`);
  return deployment;
}

/**
 * What the operator suspended stays as the operator saw it; a blocked wallet changes nothing.
 * @throws Problem suspended | blocked
 */
export function assertChangeable({ blocks }: Pick<ControlDeps, 'blocks'>, deployment: Deployment): void {
  const suspended = suspension(deployment);
  if (suspended) throw suspended;
  if (blocks.hasWallet(deployment.owner)) throw blockedWallet(deployment.owner);
}

/**
 * The deployment as it is now, to be changed.
 * @throws Problem gone | suspended | blocked when it became so since it was looked up
 */
export async function stillChangeable(
  deps: Pick<ControlDeps, 'deployments' | 'blocks'>,
  known: Deployment,
): Promise<Deployment> {
  const present = await living(deps, known.slug);
  if (present.tenant !== known.tenant) throw new Problem('gone', `${known.slug} was decommissioned.`);
  assertChangeable(deps, present);
  return present;
}

/** Its updates come before the first deploys of strangers: it was paid for. */
export function askerOf(deployment: Deployment): Asker {
  return { kind: 'owner', wallet: deployment.owner };
}

/** Who made a version: the wallet, or the key that acts for it. */
export function makerOf({ payer, key }: { payer: Payer; key?: DeployKey }): string {
  return key ? keyLabel(key) : payer.address;
}

/** @param wallet that paid or signed */
export function notOwner({ slug, owner }: Pick<Deployment, 'slug' | 'owner'>, wallet: string): Problem {
  return new Problem(
    'not_owner',
    `${slug} belongs to ${owner}, and this comes from ${wallet}. Nothing was changed or charged.`,
  );
}

export function noDeployment(slug: string): Problem {
  return new Problem(
    'not_found',
    `There is no deployment ${slug}. Paid services are listed in /llms.txt; the operator lists all with turnpike tenants.`,
  );
}
