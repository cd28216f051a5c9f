/** GET /_admin/:slug/versions and POST /_admin/:slug/rollback: the history of a slug's code, and going back in it. */
import { z } from 'zod';
import type { Deployment } from '../../../registry/schema/deployments.ts';
import { Problem } from '../../../shared/problem.ts';
import { fieldProblem, readJson } from '../../body.ts';
import type { ControlDeps } from '../../deps.ts';
import { type Endpoint, json, jsonBody } from '../../endpoint.ts';
import { describe, iso, previewView } from '../../metadata.ts';
import { askerOf, makerOf, requireOwner, stillChangeable } from '../../ownership.ts';
import { suspension } from '../../suspension.ts';
import { bringIntoService, KEPT_VERSIONS, planUpdate } from '../../versions.ts';

export function versionsEndpoint(deps: ControlDeps): Endpoint {
  return {
    method: 'GET',
    path: '/_admin/:slug/versions',
    tool: 'versions',
    access: 'owner',
    keyActions: ['rollback', 'update'],
    summary: 'History of versions',
    description: `The newest ${KEPT_VERSIONS.count} versions of the code, newest first, which wallet or deploy key made each, and the address at which it answers while it is not live; older ones are forgotten, and so are those past ${KEPT_VERSIONS.bytes / 1_048_576} MB together. Secrets and settings are not part of a version.`,
    responses: {
      200: '`{current, versions: [{version, codeDigest, bytes, note, by, preview: {id, url, subdomainUrl}, createdAt}]}`',
    },
    handle: async (call) => {
      const owned = await requireOwner(deps, call, `GET /_admin/${call.params.slug}/versions`);
      if ('response' in owned) return owned.response;
      const rows = await deps.deployments.versions.of(owned.deployment.tenant);
      return json({
        slug: owned.deployment.slug,
        current: owned.deployment.version,
        versions: rows.map((row) => ({
          version: row.version,
          codeDigest: `sha256:${row.digest}`,
          bytes: row.bytes,
          note: row.note,
          by: row.madeBy,
          preview: isServed(owned.deployment) ? previewView(deps, owned.deployment.slug, row) : null,
          createdAt: iso(row.createdAt),
        })),
      });
    },
  };
}

function isServed(deployment: Deployment): boolean {
  return deployment.state === 'active' && !suspension(deployment);
}

const MAX_BODY_BYTES = 4_096;
const rollbackBody = z.strictObject({
  version: z
    .int('takes the number of a version')
    .positive()
    .describe('Number of the version to go back to; see versions.'),
});

export function rollbackEndpoint(deps: ControlDeps): Endpoint {
  return {
    method: 'POST',
    path: '/_admin/:slug/rollback',
    tool: 'rollback',
    access: 'owner',
    keyActions: ['rollback'],
    summary: 'Make a version live',
    description:
      'Makes an older version, or a preview, the newest one. Static files are those of that version; secrets, settings and data stay as they are: a version that does not load with them is refused.',
    body: jsonBody(rollbackBody),
    responses: {
      200: 'In service. The metadata.',
      404: 'There is no such version.',
      403: 'Another wallet owns the slug, or the operator has suspended it.',
      422: 'That version does not load with the settings and secrets of now.',
    },
    handle: async (call) => {
      const owned = await requireOwner(deps, call, `POST /_admin/${call.params.slug}/rollback`, { changes: true });
      if ('response' in owned) return owned.response;
      const { deployment } = owned;
      const limits = { maxBytes: MAX_BODY_BYTES, caller: call.context.clientIp };
      const { version } = await readJson(call.request, rollbackBody, limits);
      const updated = await deps.updates.run(deployment.tenant, async () =>
        rollBack(deps, await stillChangeable(deps, deployment), version, makerOf(owned)),
      );
      await deps.logs.append(deployment.tenant, {
        kind: 'platform',
        event: 'deployed',
        text: `version ${updated.version} is live: version ${version} ${version < deployment.version ? 'again' : 'was promoted'}${owned.key ? `, by ${makerOf(owned)}` : ''}`,
      });
      return json(await describe(deps, updated));
    },
  };
}

async function rollBack(
  deps: ControlDeps,
  deployment: Deployment,
  version: number,
  madeBy: string,
): Promise<Deployment> {
  const { tenant, slug, crons } = deployment;
  const target = (await deps.deployments.versions.of(tenant)).find((row) => row.version === version);
  if (!target) throw new Problem('not_found', `${slug} has no version ${version}; see /versions.`);
  if (crons.length > 0 && !target.handlers.includes('scheduled')) {
    throw fieldProblem('/version', `is a version without scheduled(), which the deployment's crons need`);
  }
  const { digest, bytes, handlers, assets } = target;
  const secrets = await deps.secrets.reveal(tenant);
  const { at, place } = await planUpdate(deps, { ...deployment, assets }, secrets);
  await deps.pipeline.check(digest, { ...deployment, secrets, asker: askerOf(deployment), place });
  const note = version > deployment.version ? `promote ${version}` : `rollback to ${version}`;
  const change = { code: { digest, bytes, handlers, note, madeBy }, settings: { assets } };
  return bringIntoService(deps, deployment, change, at);
}
