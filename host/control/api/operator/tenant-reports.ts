/** What the operator may read about one tenant: its usage, its versions, its domains; neither code nor secrets. */
import { DAY_MS } from '../../../registry/deployments.ts';
import { formatUsd } from '../../../shared/money.ts';
import { json } from '../../endpoint.ts';
import { iso } from '../../metadata.ts';
import { noDeployment } from '../../ownership.ts';
import { numberOf } from '../owner/logs.ts';
import type { OperatorCall, OperatorDeps, OperatorEndpoint } from './endpoint.ts';

const DEFAULT_DAYS = 30;
const MAX_DAYS = 400;

export function tenantReportsEndpoints({ control, deployments }: OperatorDeps): OperatorEndpoint[] {
  const tenantOf = async ({ params: { slug = '' } }: OperatorCall) => {
    const found = await deployments.bySlug(slug);
    if (!found) throw noDeployment(slug);
    return found;
  };
  return [
    {
      method: 'GET',
      path: '/tenants/:slug/usage',
      access: 'operator',
      summary: 'Usage and revenue of a tenant',
      description: `As its owner sees them: by UTC day, \`?days=\` (default ${DEFAULT_DAYS}).`,
      responses: { 200: '`{slug, days, storage, debtUsd, revenue}`', 404: 'no such slug' },
      async handle(call) {
        const { clock, usage, payments, storageUsage } = control;
        const { tenant, slug } = await tenantOf(call);
        const query = new URL(call.request.url).searchParams;
        const days = Math.max(1, numberOf(query.get('days'), 'days', DEFAULT_DAYS, MAX_DAYS));
        const from = new Date(clock.now() - (days - 1) * DAY_MS).toISOString().slice(0, 10);
        const [byDay, storage, debt, revenue] = await Promise.all([
          usage.byDay(tenant, from),
          storageUsage(tenant),
          payments.ledger.debt(tenant),
          payments.ledger.revenue({ tenant, from }),
        ]);
        return json({
          slug,
          days: byDay,
          storage,
          debtUsd: formatUsd(debt),
          revenue: revenue.map(({ day, route, payments, gross, fee, refunded }) => ({
            ...{ day, route, payments },
            grossUsd: formatUsd(gross),
            feeUsd: formatUsd(fee),
            refundedUsd: formatUsd(refunded),
          })),
        });
      },
    },
    {
      method: 'GET',
      path: '/tenants/:slug/versions',
      access: 'operator',
      summary: 'Versions of a tenant',
      description: 'Newest first.',
      responses: {
        200: '`{slug, current, versions: [{version, codeDigest, bytes, note, by, createdAt}]}`',
        404: 'no such slug',
      },
      async handle(call) {
        const { tenant, slug, version: current } = await tenantOf(call);
        const rows = await deployments.versions.of(tenant);
        return json({
          slug,
          current,
          versions: rows.map(({ version, digest, bytes, note, madeBy, createdAt }) => ({
            ...{ version, codeDigest: `sha256:${digest}`, bytes, note, by: madeBy, createdAt: iso(createdAt) },
          })),
        });
      },
    },
  ];
}
