/**
 * Built-in tenants: folders of builtin-tenants/ that are deployed at start through the same pipeline as anyone's,
 * owned by the operator's wallet. A start with newer sources brings the newer version into service.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { DAY_MS, newTenantId } from '../registry/deployments.ts';
import { bundleProject } from '../runtime/bundle-project.ts';
import type { Asker } from '../runtime/deploy/deploy-turns.ts';
import { Problem } from '../shared/problem.ts';
import { builtinSecrets } from './builtin-secrets.ts';
import { digestOfSources } from './builtin-sources.ts';
import type { Builtin } from './builtins.ts';
import type { DeploymentParser } from './deployment-input.ts';
import type { ControlDeps } from './deps.ts';
import { ownContext } from './edge-context.ts';
import { changedSettings, newSettings } from './settings.ts';
import type { ForwardToTenant } from './tenant-requests.ts';
import { bringIntoService } from './versions.ts';

/** Built-in tenants never expire; the registry still wants a date. */
const FOREVER_MS = 100 * 365 * DAY_MS;

const HOST: Asker = { kind: 'host' };

export interface BuiltinOwner {
  address: string;
  did: string;
}

/** What each built-in tenant was deployed from, by its slug: bundling and trying all again takes most of a start. */
export interface BuiltinRecords {
  read(slug: string): Promise<string | undefined>;
  save(slug: string, record: string): Promise<void>;
}

/**
 * Deploys or updates one built-in tenant, unless it runs already as its sources, its owner and its secrets have it.
 * @param secrets what the host adds for this tenant, over the manifest's own
 * @throws Problem when its manifest or its code is not acceptable
 */
async function deployBuiltin(
  deps: ControlDeps,
  parse: DeploymentParser,
  builtin: Builtin,
  owner: BuiltinOwner,
  secrets: Record<string, string>,
  records: BuiltinRecords,
): Promise<void> {
  const { name: slug, body } = builtin;
  const wanted = { ...(body.secrets as Record<string, string> | undefined), ...secrets };
  const sources = await digestOfSources();
  const record = async (): Promise<string | undefined> => {
    const row = await deps.deployments.bySlug(slug);
    return row?.builtin && row.state === 'active'
      ? `${row.tenant} ${row.revision} ${owner.address} ${sources}`
      : undefined;
  };
  const before = await record();
  if (before !== undefined && before === (await records.read(slug)) && (await runsAsIs(deps, slug, wanted))) return;
  await bringUpToDate(deps, parse, builtin, owner, secrets);
  const now = await record();
  if (now !== undefined) await records.save(slug, now);
}

/** Whether its code is there and its secrets are these. */
async function runsAsIs(deps: ControlDeps, slug: string, secrets: Record<string, string>): Promise<boolean> {
  const row = await deps.deployments.bySlug(slug);
  if (!row || !isSame(await deps.secrets.reveal(row.tenant), secrets)) return false;
  return await deps.codeStore.get(row.digest).then(
    () => true,
    () => false,
  );
}

async function bringUpToDate(
  deps: ControlDeps,
  parse: DeploymentParser,
  { name: slug, main, body }: Builtin,
  owner: BuiltinOwner,
  secrets: Record<string, string>,
): Promise<void> {
  const { deployments, clock, pipeline, routes, logs, log } = deps;
  const bundle = await bundleProject(main);
  const input = await parse(Buffer.from(JSON.stringify({ ...body, ...bundle })), 'application/json');
  const values = { ...input.secrets, ...secrets };
  const present = await deployments.bySlug(slug);
  if (present && present.state !== 'decommissioned') {
    if (!present.builtin) throw new Problem('conflict', `The slug ${slug} belongs to a tenant.`);
    const settings = {
      ...changedSettings(input, present, deps.clock.now()),
      payTo: (input.payTo ?? owner.address).toLowerCase(),
    };
    const { spentMs: _, ...code } = await pipeline.accept(input, { ...settings, secrets: values, asker: HOST });
    const known = await deps.secrets.reveal(present.tenant);
    const same =
      code.digest === present.digest &&
      isSame(known, values) &&
      Object.entries(settings).every(
        ([name, value]) => JSON.stringify(present[name as keyof typeof settings]) === JSON.stringify(value),
      );
    if (same) return;
    const updated = await deps.updates.run(present.tenant, () =>
      bringIntoService(deps, present, {
        settings,
        secrets: deps.secrets.seal(present.tenant, values),
        ...(code.digest === present.digest ? {} : { code: { ...code, note: 'update' } }),
      }),
    );
    log.info({ slug, version: updated.version }, 'built-in tenant updated');
    return;
  }
  const tenant = newTenantId();
  const settings = newSettings(input, owner.address, clock.now());
  const { spentMs: _, ...code } = await pipeline.accept(input, { ...settings, secrets: values, asker: HOST });
  await deployments.create(
    {
      tenant,
      slug,
      owner: owner.address.toLowerCase(),
      ownerDid: owner.did,
      code,
      settings,
      secrets: deps.secrets
        .seal(tenant, values)
        .map(({ name, keyId, sealed }) => ({ name, keyId, sealed: sealed.toString('base64') })),
      termMs: FOREVER_MS,
      builtin: true,
    },
    clock.now(),
  );
  await routes.push(slug);
  deps.scheduleChanged();
  await logs.append(tenant, { kind: 'platform', event: 'deployed', text: 'built-in tenant, version 1' });
  log.info({ slug }, 'built-in tenant deployed');
}

function isSame(one: Record<string, string>, other: Record<string, string>): boolean {
  const sorted = (record: Record<string, string>) => Object.entries(record).sort(([a], [b]) => (a < b ? -1 : 1));
  return JSON.stringify(sorted(one)) === JSON.stringify(sorted(other));
}

/** What fails is tried again after these, ms, and then after the last: it may be that the machine has too much to do. */
const PAUSES_MS = [5_000, 15_000, 60_000, 300_000];

export interface BuiltinDeployment {
  owner: BuiltinOwner;
  records: BuiltinRecords;
  /** Sends a request to the tenant. */
  forward: ForwardToTenant;
  /** Names of those that did not answer yet; they are taken out as they do. */
  waiting: Set<string>;
  /** What fails from then on is left to the next start. */
  stopping: AbortSignal;
  /** Pauses between attempts, ms. */
  pausesMs?: readonly number[];
}

/** Deploys all that `waiting` names, one after the other; a bad one does not keep the others from running. */
export async function deployBuiltins(
  deps: ControlDeps,
  parse: DeploymentParser,
  { owner, records, forward, waiting, stopping, pausesMs = PAUSES_MS }: BuiltinDeployment,
): Promise<void> {
  const { secrets } = deps.config.builtinTenants;
  for (let attempt = 0; waiting.size > 0 && !stopping.aborted; attempt += 1) {
    const pauseMs = pausesMs[Math.min(attempt, pausesMs.length - 1)] ?? 0;
    const failed = (error: unknown, name: string): void => {
      if (stopping.aborted) deps.log.info({ name }, 'the host stops; a built-in tenant is deployed at its next start');
      else deps.log.error({ err: error, name, againInS: pauseMs / 1_000 }, 'a built-in tenant does not answer');
    };
    const answers: Promise<unknown>[] = [];
    for (const name of [...waiting]) {
      if (stopping.aborted) break;
      try {
        await deps.builtinTurns.run(async () => {
          const builtin = deps.builtins.find((one) => one.name === name);
          if (!builtin) throw new Error(`there is no built-in tenant ${name}`);
          const given = { ...(await builtinSecrets(deps, builtin)), ...secrets[name] };
          await deployBuiltin(deps, parse, builtin, owner, given, records);
        });
      } catch (error) {
        failed(error, name);
        continue;
      }
      const answer = requireAnswer(deps, forward, name, stopping);
      answers.push(
        answer.then(
          () => waiting.delete(name),
          (error: unknown) => failed(error, name),
        ),
      );
    }
    await Promise.all(answers);
    if (waiting.size > 0) await delay(pauseMs, undefined, { signal: stopping, ref: false }).catch(() => undefined);
  }
}

/** Starts its instance, too: the first caller need not wait for that. @throws when it does not answer well */
async function requireAnswer(
  { publicUrl }: ControlDeps,
  forward: ForwardToTenant,
  slug: string,
  signal: AbortSignal,
): Promise<void> {
  const tenantPath = '/healthz';
  const context = ownContext(publicUrl, slug, tenantPath);
  const response = await forward(slug, new Request(`${publicUrl}/${slug}${tenantPath}`, { signal }), context, {});
  await response.body?.cancel();
  if (!response.ok) throw new Error(`${tenantPath} of ${slug} answers ${response.status}`);
}
