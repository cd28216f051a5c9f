/** The tenants of this host, and what the operator decides about one. */
import { z } from 'zod';
import { DAY_MS, type DeploymentSearch } from '../../../registry/deployments.ts';
import { unfenced } from '../../../registry/fences.ts';
import type { Deployment } from '../../../registry/schema/deployments.ts';
import { KeyedLock } from '../../../shared/mutex.ts';
import { Problem } from '../../../shared/problem.ts';
import { changedLimits, limitsInForce, limitsSchema, type TenantLimits } from '../../../shared/tenant-limits.ts';
import type { ControlDeps } from '../../deps.ts';
import { json, jsonBody } from '../../endpoint.ts';
import { describe, iso } from '../../metadata.ts';
import { living, noDeployment } from '../../ownership.ts';
import { decommission } from '../owner/delete.ts';
import { logsAnswer, numberOf } from '../owner/logs.ts';
import { bodyOf, type OperatorCall, type OperatorDeps, type OperatorEndpoint } from './endpoint.ts';
import { reasonText } from './reason.ts';

const suspendBody = z.strictObject({ reason: reasonText.describe('callers and the owner are told') });
const extendBody = z.strictObject({ days: z.int('takes whole days').min(1).max(3_650).describe('given for nothing') });
const noteBody = z.strictObject({
  note: z
    .string()
    .trim()
    .max(2_000)
    .regex(/^[\P{Cc}\n]*$/u, 'takes text without control characters')
    .describe('for operators alone; empty: none'),
});

const NO_TENANT = { 404: 'no such slug', 410: 'it was decommissioned' };

export function tenantsEndpoints({ control, deployments }: OperatorDeps): OperatorEndpoint[] {
  /** By slug: a resumption does not overtake a suspension. */
  const turns = new KeyedLock();
  const inTurn = <T>(call: OperatorCall, work: () => Promise<T>) => turns.run(call.params.slug ?? '', work);

  return [
    {
      method: 'GET',
      path: '/tenants',
      access: 'operator',
      summary: 'All deployments',
      description:
        'Expired and decommissioned ones too; `expiresAt` of a built-in tenant is null. With `?limit=` one page of them, ' +
        'and how many there are (`total`): `?offset=`, `?q=` (in the slug, the owner, the note), `?state=` (`active`, ' +
        '`expired`, `decommissioned`, `suspended`), `?sort=` (`slug`, `owner`, `createdAt`, `expiresAt`; with `-` before ' +
        'it the other way).',
      responses: {
        200: '`{tenants: [{slug, tenant, state, suspended, owner, version, builtin, createdAt, expiresAt, note}], total}`',
      },
      async handle({ request }) {
        const search = searchOf(new URL(request.url).searchParams);
        if (!search) return json({ tenants: (await deployments.all()).map(row) });
        const { rows, total } = await deployments.find(search);
        const instances = new Map(control.runtime.list().map(({ slug, status }) => [slug, status.state]));
        return json({
          tenants: rows.map((one) => ({ ...row(one), instance: instances.get(one.slug) ?? 'cold' })),
          total,
        });
      },
    },
    {
      method: 'GET',
      path: '/tenants/:slug',
      access: 'operator',
      summary: 'One deployment',
      description: 'What everybody may know of it, and the operator’s note.',
      responses: { 200: 'the metadata, with `note`', 404: 'no such slug' },
      async handle({ params: { slug = '' } }) {
        const found = await deployments.bySlug(slug);
        if (!found) throw noDeployment(slug);
        return json(await view(control, found));
      },
    },
    {
      method: 'POST',
      path: '/tenants/:slug/suspend',
      access: 'operator',
      summary: 'Suspend a deployment',
      description:
        'Callers get 403 `suspended` with the reason, before any payment is asked for. Its instance is stopped: calls ' +
        'under way have five seconds, sockets and streams end; what was taken for a call that did not end is refunded, or ' +
        'is the tenant’s debt where its own wallet has it; open payment sessions are closed within a day. Crons do not run. Its days, domains and data stay. Its owner may use ' +
        'its data by the command, see logs, usage and versions, renew and delete; updates, rollbacks, static files and ' +
        'new domains are refused, so that what is resumed is what was suspended. Repeated: another reason.',
      body: jsonBody(suspendBody),
      responses: {
        200: 'suspended, and nothing of it runs; the metadata',
        409: 'it comes with the host',
        ...NO_TENANT,
      },
      async handle(call) {
        const { reason } = await bodyOf(call, suspendBody);
        return inTurn(call, async () =>
          json(await view(control, await suspend(control, await stranger(call), reason))),
        );
      },
    },
    {
      method: 'POST',
      path: '/tenants/:slug/resume',
      access: 'operator',
      summary: 'End a suspension',
      description: 'It serves again at once, if it has not expired meanwhile. Does nothing where it is not suspended.',
      responses: { 200: 'the metadata', ...NO_TENANT },
      handle: (call) =>
        inTurn(call, async () => json(await view(control, await resume(control, await tenantOf(call))))),
    },
    {
      method: 'POST',
      path: '/tenants/:slug/extend',
      access: 'operator',
      summary: 'Give days',
      description: 'As a renewal that nobody pays for: from the later of now and the present expiry.',
      body: jsonBody(extendBody),
      responses: { 200: 'the metadata', 409: 'it never expires', ...NO_TENANT },
      async handle(call) {
        const { days } = await bodyOf(call, extendBody);
        const { clock, routes, logs, scheduleChanged } = control;
        const { tenant, slug } = await tenantOf(call);
        const extended = await deployments.terms.extend(tenant, days * DAY_MS, clock.now());
        await routes.push(slug);
        scheduleChanged();
        const text = `${days} days from the operator; runs until ${iso(extended.expiresAt)}`;
        await logs.append(tenant, { kind: 'platform', event: 'renewed', text });
        return json(await view(control, extended));
      },
    },
    {
      method: 'DELETE',
      path: '/tenants/:slug',
      access: 'operator',
      summary: 'Decommission a deployment',
      description: 'As its owner’s delete: the URL answers 410 at once, and the data goes after `slugs.graceDays`.',
      responses: { 200: 'the metadata', 409: 'it comes with the host', ...NO_TENANT },
      handle: async (call) =>
        json(await view(control, await decommission(control, await stranger(call), 'by the operator'))),
    },
    {
      method: 'GET',
      path: '/tenants/:slug/limits',
      access: 'operator',
      summary: 'Limits in force',
      description: '`source`: `operator`, where it was set for this tenant, or `setting`.',
      responses: { 200: '`{slug, limits: {<setting>: {value, source}}}`', ...NO_TENANT },
      handle: async (call) => limitsAnswer(await tenantOf(call)),
    },
    {
      method: 'PUT',
      path: '/tenants/:slug/limits',
      access: 'operator',
      summary: 'Set limits of one tenant',
      description:
        'In place of the host’s settings, whose names they have; null takes one back, what is not named stays. A running ' +
        'instance is replaced by one with the new limits, without a failed request; `storage.sqlBytes` holds from the ' +
        'next start of the database’s process, which ends when nobody has used it for a while.',
      body: jsonBody(limitsSchema),
      responses: {
        200: '`{slug, limits}` in force',
        503: 'it does not start with them; nothing was changed',
        ...NO_TENANT,
      },
      async handle(call) {
        const change = await bodyOf(call, limitsSchema);
        if (Object.keys(change).length === 0)
          throw new Problem('bad_request', 'Nothing to change: name a limit, such as {"storage.kvBytes": 1000000}.');
        const found = await tenantOf(call);
        return limitsAnswer(await limit(control, found, (present) => changedLimits(present, change)));
      },
    },
    {
      method: 'DELETE',
      path: '/tenants/:slug/limits',
      access: 'operator',
      summary: 'Take back all limits of one tenant',
      description: 'The host’s settings hold for it again.',
      responses: { 200: '`{slug, limits}` in force', ...NO_TENANT },
      handle: async (call) => limitsAnswer(await limit(control, await tenantOf(call), () => ({}))),
    },
    {
      method: 'GET',
      path: '/tenants/:slug/logs',
      access: 'operator',
      summary: 'The owner’s log',
      description:
        'As `GET /_admin/:slug/logs` of its owner: `?limit=`, `?since=`, `?after=`; with `Accept: text/event-stream` ' +
        'every further line, too.',
      responses: { 200: '`{slug, entries: [{id, time, kind, ...}]}`, or events', ...NO_TENANT },
      handle: async (call) => logsAnswer(control, await tenantOf(call), call.request),
    },
    {
      method: 'PUT',
      path: '/tenants/:slug/note',
      access: 'operator',
      summary: 'Write a note',
      description: 'For operators: the owner does not see it. It takes the place of the one before.',
      body: jsonBody(noteBody),
      responses: { 200: 'the metadata, with `note`', 404: 'no such slug' },
      async handle(call) {
        const { note } = await bodyOf(call, noteBody);
        const found = await deployments.bySlug(call.params.slug ?? '');
        if (!found) throw noDeployment(call.params.slug ?? '');
        return json(await view(control, await deployments.decisions.note(found.tenant, note || null)));
      },
    },
  ];

  function tenantOf({ params: { slug = '' } }: OperatorCall): Promise<Deployment> {
    return living({ deployments }, slug);
  }

  /** @throws Problem `conflict` for a built-in tenant, which every start would deploy again */
  async function stranger(call: OperatorCall): Promise<Deployment> {
    const found = await tenantOf(call);
    if (!found.builtin) return found;
    throw new Problem(
      'conflict',
      `${found.slug} comes with the host; leave it out of builtinTenants.enabled and start the host again.`,
    );
  }

  function limitsAnswer({ slug, limits }: Deployment): Response {
    return json({ slug, limits: limitsInForce(control.config, limits) });
  }
}

async function suspend(control: ControlDeps, { tenant, slug }: Deployment, reason: string): Promise<Deployment> {
  const { deployments, clock, routes, runtime, logs, scheduleChanged } = control;
  const suspended = await deployments.decisions.suspend(tenant, reason, clock.now());
  await routes.push(slug);
  scheduleChanged();
  await logs.append(tenant, { kind: 'platform', event: 'suspended', text: `by the operator: ${reason}` });
  await runtime.stop(slug, 'stopped', { drainMs: 0 });
  return suspended;
}

async function resume(control: ControlDeps, present: Deployment): Promise<Deployment> {
  const { deployments, routes, runtime, logs, scheduleChanged } = control;
  const { tenant, slug } = present;
  const resumed = await deployments.decisions.resume(tenant);
  // What stood in for its code ends before a caller can reach it.
  if (present.suspendedAt !== null) await runtime.stop(slug, 'stopped', { drainMs: 0 });
  await routes.push(slug);
  scheduleChanged();
  if (present.suspendedAt !== null) {
    // An alarm of its objects may be due.
    runtime.watchAlarms([{ slug, tenant }]);
    await logs.append(tenant, { kind: 'platform', event: 'resumed', text: 'by the operator' });
  }
  return resumed;
}

function limit(
  { deployments, routes, runtime, updates }: ControlDeps,
  { tenant, slug }: Deployment,
  change: (present: TenantLimits) => TenantLimits,
): Promise<Deployment> {
  return updates.run(tenant, async () => {
    let before: TenantLimits = {};
    const limited = await deployments.decisions.limit(tenant, (present) => {
      before = present;
      return change(present);
    });
    try {
      await unfenced(() => runtime.activate(slug));
    } catch (error) {
      await deployments.decisions.limit(tenant, () => before);
      throw error;
    }
    await routes.push(slug);
    return limited;
  });
}

async function view(control: ControlDeps, deployment: Deployment) {
  return { ...(await describe(control, deployment)), note: deployment.note };
}

const STATES = ['active', 'expired', 'decommissioned', 'suspended'] as const;
const SORTS = ['slug', 'owner', 'createdAt', 'expiresAt'] as const;
const LARGEST_PAGE = 500;

/** @returns undefined where all are asked for. @throws Problem `invalid_field` */
function searchOf(query: URLSearchParams): DeploymentSearch | undefined {
  if (!query.has('limit')) return undefined;
  const sort = query.get('sort') ?? 'slug';
  return {
    text: (query.get('q') ?? '').slice(0, 100),
    state: choice(query.get('state') || undefined, 'state', STATES),
    sort: choice(sort.replace(/^-/, ''), 'sort', SORTS) ?? 'slug',
    descending: sort.startsWith('-'),
    offset: numberOf(query.get('offset'), 'offset', 0),
    limit: Math.max(1, numberOf(query.get('limit'), 'limit', LARGEST_PAGE, LARGEST_PAGE)),
  };
}

function choice<T extends string>(text: string | undefined, name: string, known: readonly T[]): T | undefined {
  const found = known.find((one) => one === text);
  if (text !== undefined && found === undefined)
    throw new Problem('invalid_field', `${name} takes one of ${known.join(', ')}.`);
  return found;
}

function row(deployment: Deployment) {
  const { slug, tenant, state, owner, version, createdAt, expiresAt, builtin, note } = deployment;
  const { suspendedAt, suspendedReason } = deployment;
  return {
    slug,
    tenant,
    state,
    suspended: suspendedAt === null ? null : { since: iso(suspendedAt), reason: suspendedReason },
    owner,
    version,
    builtin,
    createdAt: iso(createdAt),
    expiresAt: builtin ? null : iso(expiresAt),
    note,
  };
}
