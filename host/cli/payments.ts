/** `turnpike payments`: what the operator earned, what is stuck or owed, and whether the books match the chain. */
import { Command } from 'commander';
import { callOperator } from './operator-client.ts';
import { type CommandDeps, type Session, withSession } from './session.ts';
import { reportedFailure } from './terminal/failure.ts';
import { table } from './terminal/printer.ts';

interface OpenItem {
  id: string;
  kind: string;
  payment: string;
  to: string;
  amount: string;
  since: number;
  error?: string;
  /** What resolves it. */
  command: string;
}

interface Stopped {
  since: number;
  violations: { invariant: string; what: string; about: string[] }[];
  command: string;
}

interface Overview {
  /** Null: payouts and refunds are sent. */
  stopped: Stopped | null;
  summary: Record<string, string>[];
  open: OpenItem[];
  gas: { leastX402Price: string; tenants: { tenant: string; today: string; budget: string; isUsedUp: boolean }[] };
}

interface Reconciliation {
  ok: boolean;
  checked: number;
  differences: { what: string; ledger: string; chain: string; reference?: string }[];
}

export function paymentsCommand(deps?: CommandDeps): Command {
  const command = new Command('payments').description(
    'operator: earnings, stuck payments, refunds owed, reconciliation',
  );
  command
    .command('list', { isDefault: true })
    .description('totals, and everything that is stuck or owed')
    .action(
      withSession(deps, async (session) => {
        const overview = JSON.parse((await callOperator(session, 'GET', '/payments')).text) as Overview;
        session.printer.result(overview, overviewText(overview));
      }),
    );
  for (const [name, action, what] of [
    ['retry', 'retry', 'ask the chain about it, or send it, again now'],
    ['refund', 'retry', 'send an owed refund now'],
    ['waive', 'waive', 'close it without money'],
  ] as const) {
    command
      .command(name)
      .description(what)
      .argument('<id>', 'of turnpike payments')
      .action(withSession(deps, (session, id: string) => settle(session, id, { action })));
  }
  command
    .command('paid')
    .description('note that it was paid by other means, such as a refund by the tenant')
    .argument('<id>', 'of turnpike payments')
    .requiredOption('--reference <hash>', 'hash of the transaction that paid it')
    .action(
      withSession(deps, (session, id: string, { reference }: { reference: string }) =>
        settle(session, id, { action: 'paid', reference }),
      ),
    );
  command
    .command('resume')
    .description('send payouts and refunds again after a check of the books had stopped them')
    .action(
      withSession(deps, async (session) => {
        const { text } = await callOperator(session, 'POST', '/payments/resume');
        session.printer.result(JSON.parse(text), 'payouts and refunds are sent, until a check of another kind fails');
      }),
    );
  command
    .command('reconcile')
    .description('compare the books with the chain; ends with code 8 when they differ')
    .action(withSession(deps, reconcile));
  command
    .command('csv')
    .description('every payment, as CSV')
    .action(
      withSession(deps, async (session) =>
        session.terminal.out((await callOperator(session, 'GET', '/payments/csv')).text),
      ),
    );
  return command;
}

async function settle(session: Session, id: string, body: object): Promise<void> {
  const { text } = await callOperator(session, 'POST', `/payments/open/${encodeURIComponent(id)}`, body);
  const answer = JSON.parse(text) as { resolved: boolean; item?: OpenItem };
  session.printer.result(
    answer,
    answer.resolved ? `${id} is resolved` : `${id} is still open: ${answer.item?.error ?? 'no answer yet'}`,
  );
  if (!answer.resolved) throw reportedFailure('refused', `${id} is not resolved.`);
}

async function reconcile(session: Session): Promise<void> {
  const { text } = await callOperator(session, 'POST', '/payments/reconcile', undefined, [409]);
  const report = JSON.parse(text) as Reconciliation;
  const lines = report.differences.map(({ what, ledger, chain, reference }) => [
    what,
    `books ${ledger}`,
    `chain ${chain}`,
    reference ?? '',
  ]);
  session.printer.result(report, report.ok ? `no difference in ${report.checked} transactions` : table(lines));
  if (!report.ok)
    throw reportedFailure('unhealthy', `${report.differences.length} differences between books and chain.`);
}

function stoppedText({ since, violations, command }: Stopped): string {
  const what = violations.map((one) => `  ${one.what} (${one.invariant}): ${one.about.join(', ')}`).join('\n');
  return `PAYOUTS AND REFUNDS ARE STOPPED since ${new Date(since).toISOString()}: the books break a rule\n${what}\nPayments are still taken. Compare with the chain: turnpike payments reconcile. When you have looked: ${command}\n\n`;
}

function overviewText({ stopped, summary, open, gas }: Overview): string {
  return `${stopped ? stoppedText(stopped) : ''}${openText(summary, open)}${gasText(gas)}`;
}

/** Only where gas costs something. */
function gasText({ leastX402Price, tenants }: Overview['gas']): string {
  if (tenants.length === 0) return '';
  const rows = tenants.map(({ tenant, today, budget, isUsedUp }) => [
    tenant,
    today,
    budget,
    isUsedUp ? 'used up: no x402 offers until tomorrow' : '',
  ]);
  return `\n\ngas of x402 settlements today; x402 is offered from ${leastX402Price} USD\n${table([['tenant', 'cost', 'budget', ''], ...rows])}`;
}

function openText(summary: Overview['summary'], open: OpenItem[]): string {
  const [first] = summary;
  const totals = first
    ? table([Object.keys(first), ...summary.map((row) => Object.values(row).map(String))])
    : 'nothing was paid yet';
  if (open.length === 0) return `${totals}\n\nnothing is stuck or owed`;
  const rows = open.map(({ id, kind, amount, to, since, error, command }) => [
    id,
    kind,
    amount,
    to,
    new Date(since).toISOString(),
    error ?? '',
    command,
  ]);
  return `${totals}\n\n${table([['id', 'kind', 'amount', 'to', 'since', 'why', 'resolved by'], ...rows])}`;
}
