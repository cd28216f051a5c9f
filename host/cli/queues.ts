/** `turnpike queues`: the queues of a deployment and what waits in them; stops, goes on with and empties one. */
import { Command } from 'commander';
import { type Bound, ownedBindings } from '../bindings/index.ts';
import { readJson } from './answer.ts';
import { addDataOptions, type DataFlags, openDataStore } from './data-store.ts';
import type { Metadata } from './metadata-view.ts';
import { slugOf } from './project/manifest.ts';
import { type CommandDeps, type Session, withSession } from './session.ts';
import { Failure } from './terminal/failure.ts';
import { table } from './terminal/printer.ts';

interface Metrics {
  backlogCount: number;
  backlogBytes: number;
  paused: boolean;
}

const ACTIONS = {
  pause: 'deliver nothing more until it is resumed; messages are still taken and kept',
  resume: 'deliver again',
  purge: 'drop all messages that wait in a queue',
};

export function queuesCommand(deps?: CommandDeps): Command {
  const command = new Command('queues').description('show and direct the queues of your deployment');
  addDataOptions(command.command('list', { isDefault: true }))
    .description('show the queues of your deployment, and how many messages wait in each')
    .action(
      withSession(deps, async (session, flags: DataFlags) => {
        const { slug, bound } = await queuesOf(session, flags);
        const queues = [];
        for (const { name, settings } of bound) {
          const store = await openDataStore(session, 'queues', name, flags);
          const { backlogCount, backlogBytes, paused } = (await readJson(await store.ask('GET', ''))) as Metrics;
          const queue = String(settings.queue);
          queues.push({ binding: name, queue, messages: backlogCount, bytes: backlogBytes, paused });
        }
        const rows = queues.map(({ binding, queue, messages, bytes, paused }) => [
          binding,
          queue,
          String(messages),
          String(bytes),
          paused ? 'paused' : '',
        ]);
        const text =
          rows.length === 0 ? `${slug} has no queue.` : table([['binding', 'queue', 'waiting', 'bytes', ''], ...rows]);
        session.printer.result({ queues }, text);
      }),
    );
  for (const [action, description] of Object.entries(ACTIONS)) {
    addDataOptions(command.command(`${action} <queue>`))
      .description(description)
      .action(
        withSession(deps, async (session, queue: string, flags: DataFlags) => {
          const { slug, bound } = await queuesOf(session, flags);
          const found = bound.find(({ settings }) => settings.queue === queue);
          if (!found) {
            const names = bound.map(({ settings }) => settings.queue).join(', ') || 'none';
            throw new Failure('usage', `${slug} has no queue ${queue}. It has: ${names}.`);
          }
          const store = await openDataStore(session, 'queues', found.name, flags);
          const answer = (await readJson(await store.ask('POST', '', {}, { action }))) as Metrics;
          const { backlogCount: messages, backlogBytes: bytes, paused } = answer;
          session.printer.result(
            { queue, messages, bytes, paused },
            `${queue}${paused ? ' is paused' : ''}: ${messages} waiting`,
          );
        }),
      );
  }
  return command;
}

/** Each queue once, whatever its bindings. */
async function queuesOf(session: Session, flags: DataFlags): Promise<{ slug: string; bound: Bound[] }> {
  const project = await session.project(undefined, flags.env === undefined ? {} : { env: flags.env });
  const slug = slugOf(project, flags.slug);
  const { bindings } = await (await session.host()).get<Metadata>(`/_admin/get/${encodeURIComponent(slug)}`);
  const all = ownedBindings({ queues: bindings.queues ?? false });
  const sending = all.filter(({ settings }) => settings.producer !== false);
  const once = new Map([...all, ...sending.reverse()].map((one) => [one.settings.queue, one]));
  return { slug, bound: [...once.values()] };
}
