/** `turnpike analytics`: asks with SQL for the data points that a deployment has recorded. */
import { Command } from 'commander';
import { ownedBindings } from '../bindings/index.ts';
import { readJson } from './answer.ts';
import { addDataOptions, type DataFlags, openDataStore } from './data-store.ts';
import type { Metadata } from './metadata-view.ts';
import { slugOf } from './project/manifest.ts';
import { type CommandDeps, type Session, withSession } from './session.ts';
import { Failure } from './terminal/failure.ts';
import { table } from './terminal/printer.ts';

interface Answer {
  meta: { name: string; type: string }[];
  data: Record<string, unknown>[];
  rows: number;
}

export function analyticsCommand(deps?: CommandDeps): Command {
  const command = new Command('analytics').description('ask for the data points of your deployment');
  addDataOptions(command.command('query'))
    .description('run SQL on the datasets of a deployment; "SHOW TABLES" names them')
    .argument('<slugOrSql>', 'the deployment, or the SQL for the one of the project')
    .argument('[sql]', 'such as "SELECT blob1, SUM(_sample_interval) FROM visits GROUP BY blob1"')
    .action(
      withSession(deps, (session, first: string, second: string | undefined, flags: DataFlags) =>
        second === undefined ? query(session, first, flags) : query(session, second, { ...flags, slug: first }),
      ),
    );
  return command;
}

async function query(session: Session, sql: string, flags: DataFlags): Promise<void> {
  const store = await openDataStore(session, 'analytics', await anyBinding(session, flags), flags);
  const answer = (await readJson(await store.ask('POST', '', {}, { query: sql }))) as Answer;
  const columns = answer.meta.map(({ name }) => name);
  const rows = answer.data.map((row) => columns.map((name) => shown(row[name])));
  session.printer.result(answer, rows.length === 0 ? 'No row.' : table([columns, ...rows]));
}

/** All of a deployment lead to the same data. */
async function anyBinding(session: Session, flags: DataFlags): Promise<string> {
  const project = await session.project(undefined, flags.env === undefined ? {} : { env: flags.env });
  const slug = slugOf(project, flags.slug);
  const { bindings } = await (await session.host()).get<Metadata>(`/_admin/get/${encodeURIComponent(slug)}`);
  const [bound] = ownedBindings({ analytics: bindings.analytics ?? false });
  if (!bound) throw new Failure('usage', `${slug} records no data points: it has no binding "analytics".`);
  return bound.name;
}

function shown(value: unknown): string {
  if (value === null) return 'NULL';
  return typeof value === 'object' ? JSON.stringify(value) : String(value);
}
