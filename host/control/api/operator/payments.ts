/** The books: what is open, what was earned, and what an operator decides about it. */
import { z } from 'zod';
import type { Payments } from '../../../payments/types.ts';
import { formatUsd } from '../../../shared/money.ts';
import { json, jsonBody } from '../../endpoint.ts';
import { bodyOf, type OperatorDeps, type OperatorEndpoint } from './endpoint.ts';

const decision = z.strictObject({
  action: z.enum(['retry', 'paid', 'waive']),
  reference: z.string().optional().describe('of the transaction that paid it elsewhere'),
});

export function paymentsEndpoints({ payments: { ledger } }: OperatorDeps): OperatorEndpoint[] {
  return [
    {
      method: 'GET',
      path: '/payments',
      access: 'operator',
      summary: 'Payments that are open, sums, gas, and the x402 facilitator where one elsewhere settles',
      description: '`stopped` says why payouts are stopped, or is null.',
      responses: { 200: '`{stopped, summary, open, gas, facilitator}`' },
      handle: async () =>
        json({
          stopped: ledger.stopped() ?? null,
          summary: await ledger.summary(),
          open: await ledger.open(),
          gas: await gasText(ledger),
          facilitator: ledger.facilitator(),
        }),
    },
    {
      method: 'POST',
      path: '/payments/resume',
      access: 'operator',
      asksAgain: () => true,
      summary: 'Resume payouts',
      description:
        'After a check of the books failed and its cause is known. What it found is accepted until it finds it no more.',
      responses: { 200: '`{stopped}`: null where payouts run' },
      async handle() {
        await ledger.resume();
        return json({ stopped: ledger.stopped() ?? null });
      },
    },
    {
      method: 'GET',
      path: '/payments/csv',
      access: 'operator',
      summary: 'All payments as CSV',
      description: 'Amounts are in USD.',
      responses: { 200: 'text/csv' },
      handle: async () =>
        new Response(await ledger.csv({}), { headers: { 'content-type': 'text/csv; charset=utf-8' } }),
    },
    {
      method: 'GET',
      path: '/payments/revenue',
      access: 'operator',
      summary: 'Revenue by day, deployment and route',
      description: 'Amounts are in USD. `?from=`, `?to=`: UTC days, inclusive.',
      responses: { 200: '`{revenue: [{gross, fee, refunded, …}]}`' },
      handle: async ({ request }) =>
        json({
          revenue: (await ledger.revenue(daysOf(request))).map((row) => ({
            ...row,
            gross: formatUsd(row.gross),
            fee: formatUsd(row.fee),
            refunded: formatUsd(row.refunded),
          })),
        }),
    },
    {
      method: 'GET',
      path: '/payments/:payment/lines',
      access: 'operator',
      summary: 'Lines of the books about one payment',
      description: 'Amounts are micro-USD as text.',
      responses: { 200: '`{lines}`' },
      handle: async ({ params }) =>
        json({
          lines: (await ledger.lines({ payment: params.payment ?? '' })).map((line) => ({
            ...line,
            amount: line.amount.toString(),
          })),
        }),
    },
    {
      method: 'GET',
      path: '/payments/wallets',
      access: 'operator',
      summary: 'Wallets of the host, and their gas',
      description: 'Asks the chains. `settlementsLeft`: for how many settlements the gas is enough.',
      responses: { 200: '`{wallets: [{name, address, chain, usd, coin, settlementsLeft, isLow}]}`' },
      handle: async () => json({ wallets: await ledger.wallets() }),
    },
    {
      method: 'POST',
      path: '/payments/reconcile',
      access: 'operator',
      summary: 'Compare the books with the chains',
      description: 'Asks the chains for every balance and channel.',
      responses: { 200: 'they agree', 409: '`differences` says where they do not' },
      async handle() {
        const report = await ledger.reconcile();
        return json(report, report.ok ? 200 : 409);
      },
    },
    {
      method: 'POST',
      path: '/payments/open/:id',
      access: 'operator',
      asksAgain: () => true,
      summary: 'Decide about an open payment',
      description: '`retry` it, note that it was `paid` elsewhere, or `waive` it.',
      body: jsonBody(decision),
      responses: { 200: '`{resolved, item}`' },
      async handle(call) {
        const { action, reference } = await bodyOf(call, decision);
        const item = await ledger.resolve(call.params.id ?? '', { action, ...(reference ? { reference } : {}) });
        return json({ resolved: item === undefined, ...(item ? { item } : {}) });
      },
    },
  ];
}

function daysOf({ url }: Request): { from?: string; to?: string } {
  const query = new URL(url).searchParams;
  const [from, to] = [query.get('from'), query.get('to')];
  return { ...(from ? { from } : {}), ...(to ? { to } : {}) };
}

async function gasText(ledger: Payments['ledger']) {
  const { floor, tenants } = await ledger.gas();
  return {
    leastX402Price: formatUsd(floor),
    tenants: tenants.map(({ tenant, spent, budget, isUsedUp }) => ({
      tenant,
      today: formatUsd(spent),
      budget: formatUsd(budget),
      isUsedUp,
    })),
  };
}
