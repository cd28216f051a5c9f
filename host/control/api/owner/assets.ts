/** Static files of a deployment: which are missing, and one at a time. An update then says which is where. */
import { z } from 'zod';
import { fileHash, MAX_FILES } from '../../../assets/asset-list.ts';
import { checked, readJson } from '../../body.ts';
import type { ControlDeps } from '../../deps.ts';
import { type Endpoint, json, jsonBody } from '../../endpoint.ts';
import { requireOwner } from '../../ownership.ts';

const MAX_BODY_BYTES = 2 * 1_048_576;
const body = z.strictObject({
  hashes: z.array(fileHash).max(MAX_FILES).describe('SHA-256 of each file, hexadecimal.'),
});

export function assetEndpoints(deps: ControlDeps): Endpoint[] {
  return [
    {
      method: 'POST',
      path: '/_admin/:slug/assets',
      access: 'owner',
      keyActions: ['update'],
      summary: 'Ask which static files are missing',
      description: 'Answers `{missing: [sha256]}`: those that the host does not have of this deployment.',
      body: jsonBody(body),
      responses: { 200: 'What is missing.', 403: 'Another wallet owns the slug.' },
      handle: async (call) => {
        const owned = await requireOwner(deps, call, `POST /_admin/${call.params.slug}/assets`);
        if ('response' in owned) return owned.response;
        const limits = { maxBytes: MAX_BODY_BYTES, caller: call.context.clientIp };
        const { hashes } = await readJson(call.request, body, limits);
        return json({ missing: await deps.assets.missing(owned.deployment.tenant, hashes) });
      },
    },
    {
      method: 'PUT',
      path: '/_admin/:slug/assets/:sha256',
      access: 'owner',
      keyActions: ['update'],
      summary: 'Send a static file',
      description:
        'The body is the file, at most 25 MiB. It is kept for an hour, or for as long as a version has it in its `assets`.',
      responses: {
        201: 'It is kept.',
        400: 'The body is not the file that the path names.',
        403: 'Another wallet owns the slug.',
        413: 'The file is too large.',
        507: 'The quota is used up.',
      },
      handle: async (call) => {
        const scope = `PUT /_admin/${call.params.slug}/assets/${call.params.sha256}`;
        const owned = await requireOwner(deps, call, scope, { changes: true });
        if ('response' in owned) return owned.response;
        const { sha256 } = checked(z.object({ sha256: fileHash }), { sha256: call.params.sha256 });
        const { headers, body: file } = call.request;
        const length = Number(headers.get('content-length') ?? (file ? Number.NaN : 0));
        await deps.assets.put(owned.deployment.tenant, sha256, file ?? new Blob([]).stream(), length);
        return json({ sha256 }, 201);
      },
    },
  ];
}
