/** `turnpike usage`: requests, errors, storage and revenue by day; or every payment as CSV. */
import { Command, InvalidArgumentError } from 'commander';
import { slugOf } from './project/manifest.ts';
import { type CommandDeps, withSession } from './session.ts';
import { table } from './terminal/printer.ts';

interface Usage {
  slug: string;
  /** Owed to callers. */
  debtUsd: string;
  days: Record<string, unknown>[];
  storage: Record<string, unknown>;
  revenue: { day: string; route: string; payments: number; grossUsd: string; feeUsd: string; refundedUsd: string }[];
}

export function usageCommand(deps?: CommandDeps): Command {
  return new Command('usage')
    .description('show requests, errors, storage and revenue of your deployment')
    .argument('[slug]', 'default: "slug" of turnpike.json')
    .option('--days <n>', 'how many days back', days, 30)
    .option('--csv', 'every payment, as CSV')
    .action(
      withSession(deps, async (session, given: string | undefined, flags: { days: number; csv?: boolean }) => {
        const slug = slugOf(await session.project(), given);
        const path = `/_admin/${encodeURIComponent(slug)}/usage?days=${flags.days}`;
        if (flags.csv) {
          session.terminal.out(await (await session.host()).ownText(path, 'text/csv'));
          return;
        }
        const usage = await (await session.host()).own<Usage>('GET', path);
        session.printer.result(usage, usageText(usage));
      }),
    );
}

export function usageText({ days: byDay, storage, revenue, debtUsd }: Usage): string {
  const blocks = [
    rowsOf(byDay, 'no requests yet'),
    table(Object.entries(storage).map(([name, value]) => [name, String(value)])),
    revenue.length === 0 ? '' : rowsOf(revenue, ''),
    Number(debtUsd) > 0
      ? `${debtUsd} USD are owed to callers whose answers broke off: held back from later revenue`
      : '',
  ];
  return blocks.filter((block) => block !== '').join('\n\n');
}

function rowsOf(rows: object[], empty: string): string {
  const [first] = rows;
  if (!first) return empty;
  return table([Object.keys(first), ...rows.map((row) => Object.values(row).map(String))]);
}

function days(text: string): number {
  const value = Number(text);
  if (!Number.isInteger(value) || value < 1 || value > 400) throw new InvalidArgumentError('It takes 1 to 400.');
  return value;
}
