/** `turnpike workflows`: starts instances of a deployment's workflows, shows and directs them. */
import { Command } from 'commander';
import { readJson } from './answer.ts';
import { addDataOptions, type DataFlags, openDataStore } from './data-store.ts';
import { type CommandDeps, withSession } from './session.ts';
import { Failure } from './terminal/failure.ts';
import { table } from './terminal/printer.ts';

type Flags = DataFlags & { binding?: string };

interface Status {
  id: string;
  status?: string;
  output?: unknown;
  error?: { name: string; message: string } | null;
}

interface Asked {
  status?: string;
  limit?: string;
  cursor?: string;
}

interface Page {
  instances: { id: string; status: string; created: string; ended?: string; error?: string }[];
  cursor?: string;
}

export function workflowsCommand(deps?: CommandDeps): Command {
  const command = new Command('workflows').description('start, show and direct instances of your workflows');
  const add = (name: string, description: string) =>
    addDataOptions(command.command(`${name} <id>`))
      .description(description)
      .option('--binding <name>', 'of the workflow, where there are several');
  addDataOptions(command.command('list [workflow]'))
    .description('list the instances of a workflow, the newest first')
    .option('--status <status>', 'only those that are running, waiting, paused, complete, errored, terminated, …')
    .option('--limit <count>', 'at most so many, 1 to 100', '100')
    .option('--cursor <cursor>', 'goes on where a page ended')
    .action(
      withSession(deps, async (session, workflow: string | undefined, flags: DataFlags & Asked) => {
        const store = await openDataStore(session, 'workflows', workflow, flags);
        const { status, limit, cursor } = flags;
        const page = (await readJson(await store.ask('GET', '', { status, limit, cursor }))) as Page;
        const rows = page.instances.map(({ id, status, created, ended = '', error = '' }) => [
          id,
          status,
          created,
          ended,
          error,
        ]);
        const listed = rows.length > 0 ? table([['id', 'status', 'created', 'ended', ''], ...rows]) : 'No instance.';
        const more = page.cursor === undefined ? '' : `\nMore: --cursor ${page.cursor}`;
        session.printer.result(page, `${listed}${more}`);
      }),
    );
  add('status', 'show an instance').action(
    withSession(deps, async (session, id: string, flags: Flags) => {
      const store = await openDataStore(session, 'workflows', flags.binding, flags);
      const found = (await readJson(await store.ask('GET', '/value', { key: id }))) as Status;
      session.printer.result(found, describe(found));
    }),
  );
  add('create', 'start an instance with this id')
    .option('--params <json>', 'what its run() is given', '{}')
    .action(
      withSession(deps, async (session, id: string, flags: Flags & { params: string }) => {
        const store = await openDataStore(session, 'workflows', flags.binding, flags);
        await store.ask('PUT', '/value', { key: id }, Buffer.from(JSON.stringify(json('--params', flags.params))));
        session.printer.result({ id }, id);
      }),
    );
  for (const action of ['pause', 'resume', 'restart', 'terminate']) {
    add(action, `${action} an instance`).action(
      withSession(deps, async (session, id: string, flags: Flags) => {
        const store = await openDataStore(session, 'workflows', flags.binding, flags);
        const found = (await readJson(await store.ask('POST', '', {}, { id, action }))) as Status;
        session.printer.result(found, describe(found));
      }),
    );
  }
  add('send', 'send an event to an instance')
    .requiredOption('--type <type>', 'of the event')
    .option('--payload <json>', 'what the instance is given', 'null')
    .action(
      withSession(deps, async (session, id: string, flags: Flags & { type: string; payload: string }) => {
        const store = await openDataStore(session, 'workflows', flags.binding, flags);
        const event = { type: flags.type, payload: json('--payload', flags.payload) };
        const found = (await readJson(await store.ask('POST', '', {}, { id, event }))) as Status;
        session.printer.result(found, describe(found));
      }),
    );
  return command;
}

function json(option: string, text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    throw new Failure('usage', `${option} is no JSON: ${text.slice(0, 100)}`);
  }
}

function describe({ id, status = '', output, error }: Status): string {
  const end = error
    ? `\n${error.name}: ${error.message}`
    : output === undefined || output === null
      ? ''
      : `\n${JSON.stringify(output)}`;
  return `${id}  ${status}${end}`;
}
