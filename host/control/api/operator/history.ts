/** GET /history: what the host did in the last hour, day or month, for charts. */

import { RANGES, type Range } from '../../../observability/history-view.ts';
import { formatUsd, micro } from '../../../shared/money.ts';
import { Problem } from '../../../shared/problem.ts';
import { json } from '../../endpoint.ts';
import { iso } from '../../metadata.ts';
import { noDeployment } from '../../ownership.ts';
import type { OperatorDeps, OperatorEndpoint } from './endpoint.ts';

export function historyEndpoint({ deployments, history }: OperatorDeps): OperatorEndpoint {
  return {
    method: 'GET',
    path: '/history',
    access: 'operator',
    summary: 'What happened over time',
    description:
      'By `?range=`: `hour` (by minutes), `day` (by 10 minutes) or `month` (30 days by 4 hours). Requests, those that ' +
      'failed (`clientErrors`: 4xx, `serverErrors`: 5xx) and were asked to pay (`unpaid`: 402), percentiles of durations, ' +
      'payments, USD `charged` to callers and `earned` by the host, memory in bytes and CPU in percent of a core by ' +
      'process, disk, instances. `known` says of how many minutes of a step something is known. `busiest`: tenants that ' +
      'were among the eight busiest of a minute. With `?slug=`: requests and errors of that one in such minutes. ' +
      'Of several nodes it is the sum; `missing` names those that did not answer.',
    responses: { 200: '`{range, stepMs, points, busiest, missing}`', 404: 'no such slug' },
    async handle({ request }) {
      const query = new URL(request.url).searchParams;
      const range = rangeOf(query.get('range') ?? 'day');
      const slug = query.get('slug');
      const { stepMs } = RANGES[range];
      if (slug !== null) {
        const found = await deployments.bySlug(slug);
        if (!found) throw noDeployment(slug);
        const { points, missing } = await history.tenant(found.tenant, range, Date.now());
        return json({ range, stepMs, slug, points: points.map((point) => ({ ...point, at: iso(point.at) })), missing });
      }
      const { points, busiest, missing } = await history.host(range, Date.now());
      const slugs = await deployments.slugsOf(busiest.map(({ tenant }) => tenant));
      return json({
        range,
        stepMs,
        points: points.map(({ at, charged, earned, ...point }) => ({
          at: iso(at),
          ...point,
          charged: formatUsd(micro(charged)),
          earned: formatUsd(micro(earned)),
        })),
        busiest: busiest.map(({ tenant, requests, errors }) => ({
          slug: slugs.get(tenant) ?? tenant,
          requests,
          errors,
        })),
        missing,
      });
    },
  };
}

function rangeOf(text: string): Range {
  if (Object.hasOwn(RANGES, text)) return text as Range;
  throw new Problem('invalid_field', `range takes one of ${Object.keys(RANGES).join(', ')}.`);
}
