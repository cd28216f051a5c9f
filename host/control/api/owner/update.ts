/** PUT /_admin/code/:slug: the owner replaces code, secrets or settings; no request fails meanwhile. */
import { isDeepStrictEqual } from 'node:util';
import type { Payer } from '../../../payments/types.ts';
import type { CodeVersion } from '../../../registry/deployment-versions.ts';
import type { DeploymentChange, DeploymentSettings } from '../../../registry/deployments.ts';
import type { DeployKey } from '../../../registry/schema/deploy-keys.ts';
import type { Deployment } from '../../../registry/schema/deployments.ts';
import type { ProbePlace } from '../../../runtime/deploy/probe.ts';
import type { BindingSet } from '../../../shared/contracts.ts';
import { Problem } from '../../../shared/problem.ts';
import { readBody } from '../../../shared/request-body.ts';
import { fieldProblem } from '../../body.ts';
import { requireAction } from '../../deploy-keys.ts';
import {
  type DeploymentInput,
  type DeploymentParser,
  deploymentBodyBytes,
  updateBody,
} from '../../deployment-input.ts';
import type { ControlDeps } from '../../deps.ts';
import { type Endpoint, json } from '../../endpoint.ts';
import { describe, previewView } from '../../metadata.ts';
import { askerOf, makerOf, requireOwner, stillChangeable } from '../../ownership.ts';
import { checkServices } from '../../service-calls.ts';
import { changedSettings, checkDatabases, checkNames, checkPayTo, storedRoutes } from '../../settings.ts';
import { bringIntoService, keepPreview, liveText, planUpdate } from '../../versions.ts';

/** What decides whether code loads, beside the code: a deployment that does not run would fail with its next request. */
const LOADED_WITH = [
  'compatibilityDate',
  'compatibilityFlags',
  'bindings',
  'vars',
  'secrets',
  'secretChanges',
] as const;

export function updateEndpoint(deps: ControlDeps, parse: DeploymentParser): Endpoint {
  const { config, deployments, pipeline, secrets, logs, updates } = deps;
  return {
    method: 'PUT',
    path: '/_admin/code/:slug',
    tool: 'update',
    access: 'owner',
    keyActions: ['update', 'secrets'],
    summary: 'Replace code, secrets or settings',
    description:
      'Only what is given changes. `secrets` replaces the whole set; `secretChanges` sets single ones (null removes one ' +
      'that is set). ' +
      'The new version is started beside the old one and takes over when it listens: no request fails. ' +
      'A version that is refused or does not start leaves everything as it was. ' +
      'With a deploy key or a session, `paidRoutes`, `payTo` and the payments binding have to be what they are now; a key ' +
      'of certain slugs adds no binding that leads to another deployment or to a shared store.',
    body: updateBody(config.runtime),
    responses: {
      200: 'In service. The metadata of the deployment; with `preview`, also `{preview: {version, id, url, subdomainUrl}}`.',
      400: 'A field is not acceptable; `errors` points at it.',
      409: 'Static files that the update names were not sent.',
      403: 'Another wallet owns the slug, the deploy key may not do this, or the operator has suspended it.',
      404: 'There is no such deployment, or no such secret to remove.',
      410: 'The deployment was decommissioned.',
      422: 'The code was refused; `errors` has file, line, column and reason.',
      429: 'Much of your code was refused lately, or several of your updates wait; `retry-after` says when to try again.',
      503: 'Too many updates wait; `retry-after` says when to try again.',
    },
    handle: async (call) => {
      const owned = await requireOwner(deps, call, `PUT /_admin/code/${call.params.slug}`, { changes: true });
      if ('response' in owned) return owned.response;
      const { deployment } = owned;
      const body = await readBody(call.request, deploymentBodyBytes(config.runtime), call.context.clientIp);
      const input = await parse(body, call.request.headers.get('content-type') ?? 'application/json');
      if (input.slug !== undefined && input.slug !== deployment.slug) throw fieldProblem('/slug', 'cannot be changed');
      if (input.secrets && input.secretChanges) throw fieldProblem('/secretChanges', 'cannot be given beside secrets');
      if (Object.keys(input).every((key) => key === 'slug' || key === 'preview')) {
        throw new Problem('bad_request', 'Nothing to change: give code, secrets or settings.');
      }
      if (input.preview) requirePreview(input);
      const { key } = owned;
      if (key) requireActionsFor(input, key);
      if (input.preview) return json(await updates.run(deployment.tenant, () => upload(deployment, input, owned)));
      const updated = await updates.run(deployment.tenant, async () => {
        const present = await stillChangeable(deps, deployment);
        if (key) refuseMoney(input, present, 'A deploy key');
        if (key?.slugs) refuseOthers(input, present);
        if (owned.isSession) refuseMoney(input, present, 'A session');
        return update(present, input, makerOf(owned));
      });
      await logs.append(deployment.tenant, {
        kind: 'platform',
        event: 'deployed',
        text: `${hasCode(input) ? liveText(updated) : 'settings changed'}${key ? `, by ${makerOf(owned)}` : ''}`,
      });
      return json(await describe(deps, updated));
    },
  };

  /** Keeps code and static files as a version; what is live stays. */
  async function upload(known: Deployment, input: DeploymentInput, owner: { payer: Payer; key?: DeployKey }) {
    const present = await stillChangeable(deps, known);
    const { tenant, slug } = present;
    const settings: DeploymentSettings = { ...present, ...(await givenAssets(input, tenant)) };
    checkNames(settings, await deployments.secretNames(tenant));
    const code = hasCode(input)
      ? await accept(input, settings, present, await secrets.reveal(tenant))
      : await liveCode(present);
    try {
      const kept = { ...code, assets: settings.assets, madeBy: makerOf(owner) };
      const added = await keepPreview(deps, present, kept);
      const { version } = added;
      const by = owner.key ? `, by ${makerOf(owner)}` : '';
      await logs.append(tenant, { kind: 'platform', event: 'uploaded', text: `version ${version}, not live${by}` });
      return { ...(await describe(deps, present)), preview: { version, ...previewView(deps, slug, added) } };
    } finally {
      if (hasCode(input)) await deps.releaseCode(code.digest);
    }
  }

  async function liveCode({ tenant, version }: Deployment): Promise<CodeVersion> {
    const live = (await deployments.versions.of(tenant)).find((one) => one.version === version);
    if (!live) throw new Problem('conflict', 'What is live is no kept version; send the code, too.');
    const { digest, bytes, handlers } = live;
    return { digest, bytes, handlers };
  }

  async function update(deployment: Deployment, input: DeploymentInput, madeBy: string): Promise<Deployment> {
    const settings = {
      ...changedSettings(input, deployment, deps.clock.now()),
      ...(await givenAssets(input, deployment.tenant)),
    };
    checkPayTo(settings, deps.payments);
    if (!hasCode(input) && settings.crons.length > 0 && !deployment.handlers.includes('scheduled')) {
      throw fieldProblem('/crons', 'needs code that exports scheduled()');
    }
    await checkSecretChanges(input, deployment);
    checkNames(settings, await futureSecretNames(input, deployment.tenant));
    const { tenant } = deployment;
    const isLoaded = hasCode(input) || LOADED_WITH.some((name) => input[name] !== undefined);
    const future = isLoaded ? await futureSecrets(input, tenant) : {};
    if (input.bindings ?? input.secrets ?? input.secretChanges) checkDatabases(settings, future);
    if (input.bindings) await checkServices(deps, { ...deployment, bindings: input.bindings });
    if (!isLoaded) return await bringIntoService(deps, deployment, changeOf(input, settings, tenant));
    const { at, place } = await planUpdate(deps, { ...deployment, ...settings }, future);
    if (!hasCode(input)) {
      const asker = askerOf(deployment);
      await pipeline.check(deployment.digest, { ...settings, secrets: future, asker, place });
      return await bringIntoService(deps, deployment, changeOf(input, settings, tenant), at);
    }
    const code = await accept(input, settings, deployment, future, place);
    try {
      const kept = { ...code, madeBy, note: 'update' };
      return await bringIntoService(deps, deployment, { ...changeOf(input, settings, tenant), code: kept }, at);
    } finally {
      await deps.releaseCode(code.digest);
    }
  }

  async function accept(
    input: DeploymentInput,
    settings: DeploymentSettings,
    deployment: Deployment,
    secrets: Record<string, string>,
    place?: () => ProbePlace | undefined,
  ): Promise<CodeVersion> {
    const asker = askerOf(deployment);
    const { spentMs: _, ...code } = await pipeline.accept(input, { ...settings, secrets, asker, place });
    return code;
  }

  function changeOf(input: DeploymentInput, settings: DeploymentSettings, tenant: string): DeploymentChange {
    return {
      // Only what was given: what others set by other ways stays.
      settings: Object.fromEntries(Object.entries(settings).filter(([name]) => Object.hasOwn(input, name))),
      ...(input.secrets ? { secrets: secrets.seal(tenant, input.secrets) } : {}),
      ...(input.secretChanges ? { secretChanges: splitChanges(tenant, input.secretChanges) } : {}),
    };
  }

  async function givenAssets(
    { assets }: DeploymentInput,
    tenant: string,
  ): Promise<Partial<Pick<DeploymentSettings, 'assets'>>> {
    if (!assets) return assets === null ? { assets } : {};
    const { files, headers, redirects, ...settings } = assets;
    return { assets: { list: await deps.assets.keep(tenant, { files, headers, redirects }), ...settings } };
  }

  async function futureSecretNames(input: DeploymentInput, tenant: string): Promise<string[]> {
    if (input.secrets) return Object.keys(input.secrets);
    const changes = input.secretChanges ?? {};
    const names = new Set([...(await deployments.secretNames(tenant)), ...Object.keys(changes)]);
    return [...names].filter((name) => changes[name] !== null);
  }

  /** The secrets as they will be: top-level code may read them. */
  async function futureSecrets(input: DeploymentInput, tenant: string): Promise<Record<string, string>> {
    if (input.secrets) return input.secrets;
    const changed = { ...(await secrets.reveal(tenant)), ...input.secretChanges };
    return Object.fromEntries(Object.entries(changed).filter((entry): entry is [string, string] => entry[1] !== null));
  }

  function splitChanges(tenant: string, changes: Record<string, string | null>) {
    const set = Object.entries(changes).filter((entry): entry is [string, string] => entry[1] !== null);
    return {
      set: secrets.seal(tenant, Object.fromEntries(set)),
      remove: Object.keys(changes).filter((name) => changes[name] === null),
    };
  }

  async function checkSecretChanges(input: DeploymentInput, { slug, tenant }: Deployment): Promise<void> {
    if (!input.secretChanges) return;
    const names = new Set(await deployments.secretNames(tenant));
    for (const [name, value] of Object.entries(input.secretChanges)) {
      if (value !== null) names.add(name);
      else if (!names.delete(name))
        throw new Problem('not_found', `${slug} has no secret ${name}. Nothing was changed.`);
    }
    if (names.size > config.runtime.maxSecrets) {
      throw fieldProblem('/secretChanges', `would make more than ${config.runtime.maxSecrets} secrets`);
    }
  }
}

/** @throws Problem invalid_field */
function requirePreview({ slug: _, preview: __, main: ___, code, modules, assets, ...others }: DeploymentInput): void {
  const [other] = Object.keys(others);
  if (other !== undefined)
    throw fieldProblem(`/${other}`, 'is no part of a version: a preview has the settings and secrets of what is live');
  if (!code && !modules && assets === undefined) throw fieldProblem('/preview', 'takes code or assets');
}

/** Secrets are an action of their own, and all else is another. @throws Problem forbidden */
function requireActionsFor({ slug: _, secrets, secretChanges, ...rest }: DeploymentInput, key: DeployKey): void {
  if (secrets ?? secretChanges) requireAction(key, ['secrets']);
  if (Object.keys(rest).length > 0) requireAction(key, ['update']);
}

/** A key sends what the project says, prices too; as long as they stay as they are. @throws Problem forbidden */
function refuseMoney({ paidRoutes, payTo, bindings }: DeploymentInput, present: Deployment, who: string): void {
  const pays = (of: BindingSet) => JSON.stringify(of.payments || false);
  const changed = [
    ...(paidRoutes && !isDeepStrictEqual(storedRoutes(paidRoutes), present.paidRoutes) ? ['paidRoutes'] : []),
    ...(payTo !== undefined && payTo.toLowerCase() !== present.payTo ? ['payTo'] : []),
    // With it the code names prices while it runs.
    ...(bindings && pays(bindings) !== pays(present.bindings) ? ['bindings/payments'] : []),
  ];
  if (changed.length === 0) return;
  throw new Problem(
    'forbidden',
    `${who} does not change ${changed.join(' or ')}, and they are not what ${present.slug} has now. Nothing was changed. Change them with the owner's wallet first: turnpike update without TURNPIKE_DEPLOY_KEY.`,
    { errors: changed.map((field) => ({ pointer: `/${field}`, detail: 'takes the owner’s wallet' })) },
  );
}

/** A key of some slugs gets nowhere else by what they bind: not to more than the owner has bound. @throws Problem forbidden */
function refuseOthers({ bindings }: DeploymentInput, present: Deployment): void {
  const known = new Set(boundElsewhere(present.bindings).map(({ what }) => what));
  const more = boundElsewhere(bindings ?? {}).filter(({ what }) => !known.has(what));
  if (more.length === 0) return;
  throw new Problem(
    'forbidden',
    `A deploy key of certain slugs binds no other deployment and no shared store anew: ${more.map(({ at }) => at).join(', ')}. Nothing was changed. Bind it with the owner's wallet first: turnpike update without TURNPIKE_DEPLOY_KEY.`,
    { errors: more.map(({ at }) => ({ pointer: `/${at}`, detail: 'takes the owner’s wallet' })) },
  );
}

/** What leads to other deployments of the owner, or to what they keep. */
function boundElsewhere(bindings: BindingSet): { at: string; what: string }[] {
  return Object.entries(bindings).flatMap(([kind, asked]) =>
    Object.entries(typeof asked === 'object' ? asked : {}).flatMap(([name, settings]) => {
      const { service, entrypoint, shared, id, queue, consumer } = settings as Record<string, unknown>;
      if (service === undefined && shared !== true) return [];
      const what = JSON.stringify([kind, service, entrypoint, id, queue, consumer !== undefined]);
      return [{ at: `bindings/${kind}/${name}`, what }];
    }),
  );
}

function hasCode(input: DeploymentInput): boolean {
  return input.code !== undefined || input.modules !== undefined;
}
