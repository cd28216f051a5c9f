/** GET /_admin/:slug/crons: the schedule and its run history. */
import type { CronRuns } from '../../../registry/cron-runs.ts';
import type { ControlDeps } from '../../deps.ts';
import { type Endpoint, json } from '../../endpoint.ts';
import { iso } from '../../metadata.ts';
import { requireOwner } from '../../ownership.ts';

export function cronsEndpoint(deps: ControlDeps, history: CronRuns): Endpoint {
  return {
    method: 'GET',
    path: '/_admin/:slug/crons',
    tool: 'crons',
    access: 'owner',
    keyActions: ['logs'],
    summary: 'Scheduled runs',
    description: 'The cron expressions and their latest runs: when they were due, when they ran, how they ended.',
    responses: { 200: '`{crons, runs: [{cron, scheduledAt, startedAt, finishedAt, outcome, error}]}`' },
    handle: async (call) => {
      const owned = await requireOwner(deps, call, `GET /_admin/${call.params.slug}/crons`);
      if ('response' in owned) return owned.response;
      const runs = await history.latest(owned.deployment.tenant);
      return json({
        slug: owned.deployment.slug,
        crons: owned.deployment.crons,
        runs: runs.map(({ cron, scheduledAt, startedAt, finishedAt, outcome, error }) => ({
          cron,
          scheduledAt: iso(scheduledAt),
          startedAt: iso(startedAt),
          finishedAt: finishedAt === null ? null : iso(finishedAt),
          outcome,
          ...(error ? { error } : {}),
        })),
      });
    },
  };
}
