/** PUT /_admin/code/:slug: the owner replaces code, secrets or settings; no request fails meanwhile. */
import type { CodeVersion, DeploymentChange } from '../../registry/deployments.ts';
import { Problem } from '../../shared/problem.ts';
import { type DeploymentInput, type DeploymentParser, fieldProblem } from '../deployment-input.ts';
import { describe } from '../describe.ts';
import { type Endpoint, json } from '../endpoint.ts';
import { requireOwner } from '../ownership.ts';
import type { ControlParts } from '../parts.ts';
import { updateBodySchema } from '../schemas.ts';
import { changedSettings } from '../settings.ts';
import { bringIntoService } from '../versions.ts';

export function updateEndpoint(parts: ControlParts, parse: DeploymentParser): Endpoint {
  const { config, deployments, pipeline, secrets, logs } = parts;
  return {
    method: 'PUT',
    path: '/_admin/code/:slug',
    access: 'owner',
    summary: 'Replace code, secrets or settings',
    description:
      'Only what is given changes. `secrets` replaces the whole set; `secretChanges` sets single ones (null removes). ' +
      'The new version is started beside the old one and takes over when it listens: no request fails. ' +
      'A version that is refused or does not start leaves everything as it was.',
    body: { schema: updateBodySchema, required: true },
    responses: {
      200: 'In service. The metadata of the deployment.',
      400: 'A field is not acceptable; `errors` points at it.',
      403: 'Another wallet owns the slug.',
      404: 'There is no such deployment.',
      410: 'The deployment was decommissioned.',
      422: 'The code was refused; `errors` has file, line, column and reason.',
    },
    handle: async (call) => {
      const owned = await requireOwner(parts, call, `PUT /_admin/code/${call.params.slug}`);
      if ('response' in owned) return owned.response;
      const { deployment } = owned;
      const input = await parse(call.request);
      if (input.slug !== undefined && input.slug !== deployment.slug) throw fieldProblem('/slug', 'cannot be changed');
      if (input.secrets && input.secretChanges) throw fieldProblem('/secretChanges', 'cannot be given beside secrets');
      if (Object.keys(input).every((key) => key === 'slug')) {
        throw new Problem('bad_request', 'Nothing to change: give code, secrets or settings.');
      }
      const settings = changedSettings(input, deployment);
      const code = hasCode(input)
        ? await pipeline.accept(input, { ...settings, secrets: await futureSecrets(input, deployment.tenant) })
        : undefined;
      if (!code && settings.crons.length > 0 && !deployment.handlers.includes('scheduled')) {
        throw fieldProblem('/crons', 'needs code that exports scheduled()');
      }
      await checkSecretCount(input, deployment.tenant);
      const change: DeploymentChange = {
        // Only what was given: another update may have set the rest since `deployment` was read.
        settings: Object.fromEntries(Object.entries(settings).filter(([name]) => Object.hasOwn(input, name))),
        ...(code ? { code: { ...code, note: 'update' } satisfies CodeVersion & { note: string } } : {}),
        ...(input.secrets ? { secrets: secrets.seal(deployment.tenant, input.secrets) } : {}),
        ...(input.secretChanges ? { secretChanges: splitChanges(deployment.tenant, input.secretChanges) } : {}),
      };
      const updated = await bringIntoService(parts, deployment, change);
      await logs.append(deployment.tenant, {
        kind: 'platform',
        event: 'deployed',
        text: code ? `version ${updated.version} is live` : 'settings changed',
      });
      return json(await describe(parts, updated));
    },
  };

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

  async function checkSecretCount(input: DeploymentInput, tenant: string): Promise<void> {
    if (!input.secretChanges) return;
    const names = new Set(await deployments.secretNames(tenant));
    for (const [name, value] of Object.entries(input.secretChanges)) {
      if (value === null) names.delete(name);
      else names.add(name);
    }
    if (names.size > config.runtime.maxSecrets) {
      throw fieldProblem('/secretChanges', `would make more than ${config.runtime.maxSecrets} secrets`);
    }
  }
}

function hasCode(input: DeploymentInput): boolean {
  return input.code !== undefined || input.modules !== undefined;
}
