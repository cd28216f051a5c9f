/** Deploy keys of a wallet: POST and GET /_admin/keys, DELETE /_admin/keys/:id. Only the wallet itself gets here. */
import { z } from 'zod';
import { DAY_MS } from '../../../registry/deployments.ts';
import type { DeployKey } from '../../../registry/schema/deploy-keys.ts';
import type { Deployment } from '../../../registry/schema/deployments.ts';
import { blockedWallet } from '../../../shared/blocked-wallet.ts';
import { KEY_ACTION_NAMES, KEY_ACTIONS } from '../../../shared/deploy-keys.ts';
import { Problem } from '../../../shared/problem.ts';
import { fieldProblem, readJson } from '../../body.ts';
import { keyLabel } from '../../deploy-keys.ts';
import type { ControlDeps } from '../../deps.ts';
import { type Endpoint, json, jsonBody } from '../../endpoint.ts';
import { iso } from '../../metadata.ts';
import { living, notOwner, requireWallet } from '../../ownership.ts';

const MAX_BODY_BYTES = 16_384;
const MOST_SLUGS = 50;
const LONGEST_DAYS = 366;

const keyBody = z.strictObject({
  slugs: z
    .union([z.literal('all'), z.array(z.string()).min(1, 'is empty').max(MOST_SLUGS)])
    .describe('Of your deployments, those that the key is for; "all": every one, with those to come.'),
  actions: z
    .array(z.enum(KEY_ACTION_NAMES))
    .min(1, 'is empty')
    .describe(
      Object.entries(KEY_ACTIONS)
        .map(([action, what]) => `${action}: ${what}.`)
        .join(' '),
    ),
  until: z.iso
    .datetime('takes an ISO time such as 2027-03-01T00:00:00Z')
    .describe(`When it ends; at most ${LONGEST_DAYS} days from now.`),
  name: z
    .string()
    .regex(/^[\w.:@/ -]{1,64}$/, 'takes 1 to 64 letters, digits, spaces and _.:@/-')
    .optional()
    .describe('To tell keys apart.'),
});

export function keyEndpoints(deps: ControlDeps): Endpoint[] {
  const { keys, clock, deployments, logs } = deps;

  const make: Endpoint = {
    method: 'POST',
    path: '/_admin/keys',
    access: 'owner',
    summary: 'Make a deploy key',
    description:
      'A key that does some of what your wallet may do, for CI: `Authorization: Bearer <key>`. It moves no money: it ' +
      'does not deploy a new slug, renew, delete, change prices, payTo, domains or keys. Who may update the code decides what it does with your secrets and data. ' +
      'The key is in this answer and is never shown again.',
    body: jsonBody(keyBody),
    responses: {
      201: '`{id, key, name, slugs, actions, createdAt, expiresAt}`',
      403: 'Another wallet owns one of the slugs, or the wallet owns none.',
      404: 'There is no such deployment.',
      409: 'The wallet has too many keys.',
    },
    handle: async (call) => {
      // Not by a session: a key outlives it.
      const proof = { scope: 'POST /_admin/keys', description: 'Make a deploy key that acts for this wallet' };
      const proved = await deps.payments.proveOwner(call.request, call.context, proof);
      if ('response' in proved) return proved.response;
      const owner = proved.payer.address;
      if (deps.blocks.hasWallet(owner)) throw blockedWallet(owner);
      const limits = { maxBytes: MAX_BODY_BYTES, caller: call.context.clientIp };
      const { slugs, actions, until, name } = await readJson(call.request, keyBody, limits);
      const expiresAt = Date.parse(until);
      if (expiresAt <= clock.now()) throw fieldProblem('/until', 'has passed');
      if (expiresAt > clock.now() + LONGEST_DAYS * DAY_MS)
        throw fieldProblem('/until', `is more than ${LONGEST_DAYS} days from now`);
      const covered = slugs === 'all' ? await deployments.ofOwner(owner) : await owned(slugs, owner);
      if (covered.length === 0)
        throw new Problem('forbidden', `${owner} owns no deployment here, so it has nothing to give a key for.`);
      const { key, row } = await keys.make({
        owner,
        name: name ?? null,
        slugs: slugs === 'all' ? null : covered.map(({ slug, tenant }) => ({ slug, tenant })),
        actions: KEY_ACTION_NAMES.filter((action) => actions.includes(action)),
        expiresAt,
      });
      const text = `${keyLabel(row)} may ${row.actions.join(', ')} until ${iso(expiresAt)}`;
      for (const { tenant } of covered)
        await logs.append(tenant, { kind: 'platform', event: 'deploy-key', text }).catch(() => undefined);
      return json({ ...view(row), key }, 201);
    },
  };

  const list: Endpoint = {
    method: 'GET',
    path: '/_admin/keys',
    access: 'owner',
    summary: 'List your deploy keys',
    description: 'Those of the wallet that signs, newest first; never the keys themselves.',
    responses: { 200: '`{keys: [{id, name, slugs, actions, createdAt, expiresAt, usedAt}]}`' },
    handle: async (call) => {
      const proof = { scope: 'GET /_admin/keys', description: 'Prove which wallet is yours' };
      const proved = await requireWallet(deps, call, proof);
      if ('response' in proved) return proved.response;
      return json({ keys: (await keys.ofOwner(proved.payer.address)).map(view) });
    },
  };

  const revoke: Endpoint = {
    method: 'DELETE',
    path: '/_admin/keys/:id',
    access: 'owner',
    summary: 'Revoke a deploy key',
    description: 'It is refused from now on, and what follows a log with it is cut off.',
    responses: { 204: 'Revoked.', 404: 'The wallet has no such key.' },
    handle: async (call) => {
      const { id = '' } = call.params;
      const proof = { scope: `DELETE /_admin/keys/${id}`, description: 'Revoke a deploy key' };
      const proved = await requireWallet(deps, call, proof);
      if ('response' in proved) return proved.response;
      if (!(await keys.revoke(id, proved.payer.address)))
        throw new Problem('not_found', 'This wallet has no deploy key of that id; turnpike keys list shows them.');
      return new Response(null, { status: 204 });
    },
  };

  /** @throws Problem not_found | gone | not_owner */
  async function owned(slugs: string[], owner: string): Promise<Deployment[]> {
    return await Promise.all(
      [...new Set(slugs)].map(async (slug) => {
        const deployment = await living(deps, slug);
        if (deployment.owner !== owner) throw notOwner(deployment, owner);
        return deployment;
      }),
    );
  }

  return [make, list, revoke];
}

function view({ id, name, slugs, actions, createdAt, expiresAt, usedAt }: DeployKey) {
  return {
    id,
    name,
    slugs: slugs?.map(({ slug }) => slug) ?? 'all',
    actions,
    createdAt: iso(createdAt),
    expiresAt: iso(expiresAt),
    usedAt: usedAt === null ? null : iso(usedAt),
  };
}
