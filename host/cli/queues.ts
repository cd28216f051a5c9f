/** `turnpike queues`: the queues of a deployment, and what waits in them. */
import { Command } from 'commander';
import { boundBindings } from '../bindings/index.ts';
import { readJson } from './answer.ts';
import { addDataOptions, type DataFlags, openDataStore } from './data-store.ts';
import type { Metadata } from './metadata-view.ts';
import { slugOf } from './project/manifest.ts';
import { type CommandDeps, withSession } from './session.ts';
import { table } from './terminal/printer.ts';

interface Metrics {
  backlogCount: number;
  backlogBytes: number;
}

export function queuesCommand(deps?: CommandDeps): Command {
  return addDataOptions(new Command('queues'))
    .description('show the queues of your deployment, and how many messages wait in each')
    .action(
      withSession(deps, async (session, flags: DataFlags) => {
        const project = await session.project(undefined, flags.env === undefined ? {} : { env: flags.env });
        const slug = slugOf(project, flags.slug);
        const found = await (await session.host()).get<Metadata>(`/_admin/get/${encodeURIComponent(slug)}`);
        const bound = boundBindings({ queues: found.bindings.queues ?? false });
        const queues = [];
        for (const { name, settings } of bound) {
          const store = await openDataStore(session, 'queues', name, flags);
          const { backlogCount, backlogBytes } = (await readJson(await store.ask('GET', ''))) as Metrics;
          queues.push({ binding: name, queue: String(settings.queue), messages: backlogCount, bytes: backlogBytes });
        }
        const rows = queues.map(({ binding, queue, messages, bytes }) => [
          binding,
          queue,
          String(messages),
          String(bytes),
        ]);
        const text =
          rows.length === 0 ? `${slug} sends to no queue.` : table([['binding', 'queue', 'waiting', 'bytes'], ...rows]);
        session.printer.result({ queues }, text);
      }),
    );
}
