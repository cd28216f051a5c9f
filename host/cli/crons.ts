/** `turnpike crons`: the schedule of a deployment and its latest runs. */
import { Command } from 'commander';
import { slugOf } from './project/manifest.ts';
import { type CommandDeps, withSession } from './session.ts';
import { table } from './terminal/printer.ts';

interface Crons {
  crons: string[];
  runs: { cron: string; scheduledAt: string; startedAt: string; outcome: string; error?: string }[];
}

export function cronsCommand(deps?: CommandDeps): Command {
  return new Command('crons')
    .description('show the schedule of your deployment and its latest runs')
    .argument('[slug]', 'default: "slug" of turnpike.json')
    .action(
      withSession(deps, async (session, given: string | undefined) => {
        const slug = slugOf(await session.project(), given);
        const found = await (await session.host()).own<Crons>('GET', `/_admin/${encodeURIComponent(slug)}/crons`);
        session.printer.result(found, describe(found));
      }),
    );
}

function describe({ crons, runs }: Crons): string {
  if (crons.length === 0 && runs.length === 0) return 'It has no schedule; set one with: turnpike update --cron';
  const rows = runs.map(({ cron, scheduledAt, startedAt, outcome, error }) => [
    cron,
    scheduledAt,
    startedAt,
    outcome,
    error ?? '',
  ]);
  const schedule = `schedule  ${crons.join(', ') || 'none any more'}`;
  if (rows.length === 0) return `${schedule}\nIt has not run yet.`;
  return `${schedule}\n\n${table([['cron', 'due', 'started', 'outcome', ''], ...rows])}`;
}
