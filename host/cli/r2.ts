/** `turnpike r2`: objects of a deployment's R2 bindings. */
import { readFile } from 'node:fs/promises';
import { resolve } from 'node:path';
import type { Command } from 'commander';
import { readJson } from './answer.ts';
import { openDataStore } from './data-store.ts';
import { type KeyFlags, keyCommands, pages } from './key-commands.ts';
import { type CommandDeps, withSession } from './session.ts';
import { table } from './terminal/printer.ts';

interface R2Page {
  objects: { key: string; size: number; etag: string; uploaded: string }[];
  truncated: boolean;
  cursor?: string;
}

export function r2Command(deps?: CommandDeps): Command {
  const { command, add } = keyCommands('r2', 'objects of your deployment', deps);
  add('list', 'list objects')
    .option('--prefix <text>', 'only those whose keys begin with it')
    .action(
      withSession(deps, async (session, flags: KeyFlags) => {
        const store = await openDataStore(session, 'r2', flags.binding, flags);
        const objects: R2Page['objects'] = [];
        for await (const page of pages<R2Page>(store, flags.prefix, (one) => (one.truncated ? one.cursor : undefined)))
          objects.push(...page.objects);
        session.printer.result({ objects }, table(objects.map(({ key, size, uploaded }) => [key, size, uploaded])));
      }),
    );
  add('put', 'store a file as an object')
    .argument('<key>')
    .argument('<file>')
    .option('--content-type <type>', 'such as image/png')
    .action(
      withSession(deps, async (session, key: string, file: string, flags: KeyFlags & { contentType?: string }) => {
        const body = await readFile(resolve(session.terminal.cwd, file));
        const store = await openDataStore(session, 'r2', flags.binding, flags);
        const type = { 'content-type': flags.contentType ?? 'application/octet-stream' };
        const put = (await readJson(await store.ask('PUT', '/value', { key }, body, type))) as object;
        session.printer.result(put, `stored ${key}, ${body.length} bytes`);
      }),
    );
  return command;
}
