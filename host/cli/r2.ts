/** `turnpike r2`: objects of a deployment's R2 bindings. */
import { readFile } from 'node:fs/promises';
import { resolve } from 'node:path';
import { Command } from 'commander';
import { addDataOptions, type DataFlags, openDataStore } from './data-store.ts';
import { type CommandDeps, withSession } from './session.ts';
import { table } from './terminal/printer.ts';
import { writeAnswer } from './terminal/write-answer.ts';

interface R2Page {
  objects: { key: string; size: number; etag: string; uploaded: string }[];
  truncated: boolean;
  cursor?: string;
}

export function r2Command(deps?: CommandDeps): Command {
  const command = new Command('r2').description('objects of your deployment');
  const add = (name: string, what: string) => {
    const made = command.command(name).description(what);
    return addDataOptions(made).option('--binding <name>', 'which bucket; default: the only one');
  };
  add('list', 'list objects')
    .option('--prefix <text>', 'only those whose keys begin with it')
    .action(
      withSession(deps, async (session, flags: DataFlags & { binding?: string; prefix?: string }) => {
        const store = await openDataStore(session, 'r2', flags.binding, flags);
        const objects: R2Page['objects'] = [];
        let cursor: string | undefined;
        do {
          const page = (await (await store.ask('GET', '', { prefix: flags.prefix, cursor })).json()) as R2Page;
          objects.push(...page.objects);
          cursor = page.truncated ? page.cursor : undefined;
        } while (cursor !== undefined);
        session.printer.result({ objects }, table(objects.map(({ key, size, uploaded }) => [key, size, uploaded])));
      }),
    );
  add('get', 'print an object')
    .argument('<key>')
    .option('--file <path>', 'write it to a file')
    .action(
      withSession(deps, async (session, key: string, flags: DataFlags & { binding?: string; file?: string }) => {
        const store = await openDataStore(session, 'r2', flags.binding, flags);
        await writeAnswer(session, await store.ask('GET', '/value', { key }), flags.file);
      }),
    );
  add('put', 'store a file as an object')
    .argument('<key>')
    .argument('<file>')
    .option('--content-type <type>', 'such as image/png')
    .action(
      withSession(
        deps,
        async (session, key: string, file: string, flags: DataFlags & { binding?: string; contentType?: string }) => {
          const body = await readFile(resolve(session.terminal.cwd, file));
          const store = await openDataStore(session, 'r2', flags.binding, flags);
          const type = { 'content-type': flags.contentType ?? 'application/octet-stream' };
          const put = (await (await store.ask('PUT', '/value', { key }, body, type)).json()) as object;
          session.printer.result(put, `stored ${key}, ${body.length} bytes`);
        },
      ),
    );
  add('delete', 'delete objects')
    .argument('<keys...>')
    .action(
      withSession(deps, async (session, keys: string[], flags: DataFlags & { binding?: string }) => {
        const store = await openDataStore(session, 'r2', flags.binding, flags);
        for (const key of keys) await store.ask('DELETE', '/value', { key });
        session.printer.result({ deleted: keys }, `deleted ${keys.join(', ')}`);
      }),
    );
  return command;
}
