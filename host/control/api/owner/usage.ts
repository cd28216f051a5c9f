/** GET /_admin/:slug/usage: requests, errors, CPU, storage and revenue by day; also as CSV of payments. */
import { DAY_MS } from '../../../registry/deployments.ts';
import { formatUsd } from '../../../shared/money.ts';
import { Problem } from '../../../shared/problem.ts';
import type { ControlDeps } from '../../deps.ts';
import { type Endpoint, json } from '../../endpoint.ts';
import { requireOwner } from '../../ownership.ts';

const DEFAULT_DAYS = 30;
const MAX_DAYS = 400;

export function usageEndpoint(deps: ControlDeps): Endpoint {
  const { clock, usage, payments } = deps;
  return {
    method: 'GET',
    path: '/_admin/:slug/usage',
    tool: 'usage',
    query: { days: 'how many, counted back from today' },
    access: 'owner',
    keyActions: ['usage'],
    summary: 'Usage and revenue by day',
    description:
      `Requests, errors, bytes and CPU by UTC day, storage now, revenue by route and day. \`?days=\` (default ${DEFAULT_DAYS}). ` +
      'With `Accept: text/csv`: every payment, one line each.',
    responses: { 200: '`{days, storage, debtUsd, revenue}`, or CSV', 403: 'Another wallet owns the slug.' },
    handle: async (call) => {
      const owned = await requireOwner(deps, call, `GET /_admin/${call.params.slug}/usage`);
      if ('response' in owned) return owned.response;
      const { tenant, slug } = owned.deployment;
      const from = day(clock.now() - (daysOf(call.request.url) - 1) * DAY_MS);
      if ((call.request.headers.get('accept') ?? '').includes('text/csv')) {
        return new Response(await payments.ledger.csv({ tenant, from }), {
          headers: {
            'content-type': 'text/csv; charset=utf-8',
            'content-disposition': `attachment; filename="${slug}-payments.csv"`,
            'cache-control': 'no-store',
          },
        });
      }
      const revenue = await payments.ledger.revenue({ tenant, from });
      return json({
        slug,
        from,
        days: await usage.byDay(tenant, from),
        /** Owed to callers whose answers broke off; held back from later revenue. */
        debtUsd: formatUsd(await payments.ledger.debt(tenant)),
        storage: await deps.storageUsage(tenant),
        revenue: revenue.map((row) => ({
          day: row.day,
          route: row.route,
          payments: row.payments,
          grossUsd: formatUsd(row.gross),
          feeUsd: formatUsd(row.fee),
          refundedUsd: formatUsd(row.refunded),
        })),
      });
    },
  };
}

function daysOf(url: string): number {
  const text = new URL(url).searchParams.get('days');
  if (text === null) return DEFAULT_DAYS;
  const days = Number(text);
  if (!Number.isInteger(days) || days < 1 || days > MAX_DAYS) {
    throw new Problem('invalid_field', `days takes a whole number from 1 to ${MAX_DAYS}.`);
  }
  return days;
}

function day(ms: number): string {
  return new Date(ms).toISOString().slice(0, 10);
}
