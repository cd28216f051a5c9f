/** GET /history: what the host did in the last hour, day or month, for charts. */

import { hostHistory, RANGES, type Range, tenantHistory } from '../../../observability/history-view.ts';
import { formatUsd, micro } from '../../../shared/money.ts';
import { Problem } from '../../../shared/problem.ts';
import { json } from '../../endpoint.ts';
import { iso } from '../../metadata.ts';
import { noDeployment } from '../../ownership.ts';
import type { OperatorDeps, OperatorEndpoint } from './endpoint.ts';

/** What 30 days add up to changes little meanwhile, and takes a quarter of a second. */
const MONTH_KEPT_MS = 60_000;

export function historyEndpoint({ deployments, history: kept }: OperatorDeps): OperatorEndpoint {
  let month: { at: number; answer: ReturnType<typeof hostHistory> } | undefined;
  function historyOf(range: Range): ReturnType<typeof hostHistory> {
    const now = Date.now();
    if (range !== 'month') return hostHistory(kept.history, range, now);
    if (!month || Math.abs(now - month.at) > MONTH_KEPT_MS) {
      const answer = hostHistory(kept.history, range, now);
      month = { at: now, answer };
      answer.catch(() => {
        month = undefined;
      });
    }
    return month.answer;
  }

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
      'were among the eight busiest of a minute. With `?slug=`: requests and errors of that one in such minutes.',
    responses: { 200: '`{range, stepMs, points, busiest}`', 404: 'no such slug' },
    async handle({ request }) {
      const query = new URL(request.url).searchParams;
      const range = rangeOf(query.get('range') ?? 'day');
      const slug = query.get('slug');
      const { history, sampler } = kept;
      await sampler.refresh();
      const { stepMs } = RANGES[range];
      if (slug !== null) {
        const found = await deployments.bySlug(slug);
        if (!found) throw noDeployment(slug);
        const points = await tenantHistory(history, found.tenant, range, Date.now());
        return json({ range, stepMs, slug, points: points.map((point) => ({ ...point, at: iso(point.at) })) });
      }
      const { points, busiest } = await historyOf(range);
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
      });
    },
  };
}

function rangeOf(text: string): Range {
  if (Object.hasOwn(RANGES, text)) return text as Range;
  throw new Problem('invalid_field', `range takes one of ${Object.keys(RANGES).join(', ')}.`);
}
