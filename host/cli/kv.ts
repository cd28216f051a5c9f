/** `turnpike kv`: keys and values of a deployment's KV bindings. */
import { readFile } from 'node:fs/promises';
import { resolve } from 'node:path';
import { Command } from 'commander';
import { addDataOptions, type DataFlags, openDataStore } from './data-store.ts';
import { type CommandDeps, withSession } from './session.ts';
import { Failure } from './terminal/failure.ts';
import { writeAnswer } from './terminal/write-answer.ts';

interface KvPage {
  keys: { name: string; expiration?: number; metadata?: unknown }[];
  list_complete: boolean;
  cursor?: string;
}

export function kvCommand(deps?: CommandDeps): Command {
  const command = new Command('kv').description('keys and values of your deployment');
  const add = (name: string, what: string) => {
    const made = command.command(name).description(what);
    return addDataOptions(made).option('--binding <name>', 'which KV; default: the only one');
  };
  add('list', 'list keys')
    .option('--prefix <text>', 'only keys that begin with it')
    .action(
      withSession(deps, async (session, flags: DataFlags & { binding?: string; prefix?: string }) => {
        const store = await openDataStore(session, 'kv', flags.binding, flags);
        const keys: KvPage['keys'] = [];
        let cursor: string | undefined;
        do {
          const page = (await (await store.ask('GET', '', { prefix: flags.prefix, cursor })).json()) as KvPage;
          keys.push(...page.keys);
          cursor = page.list_complete ? undefined : page.cursor;
        } while (cursor !== undefined);
        session.printer.result({ keys }, keys.map(({ name }) => name).join('\n'));
      }),
    );
  add('get', 'print a value')
    .argument('<key>')
    .option('--file <path>', 'write it to a file')
    .action(
      withSession(deps, async (session, key: string, flags: DataFlags & { binding?: string; file?: string }) => {
        const store = await openDataStore(session, 'kv', flags.binding, flags);
        await writeAnswer(session, await store.ask('GET', '/value', { key }), flags.file);
      }),
    );
  add('put', 'set a value')
    .argument('<key>')
    .argument('[value]')
    .option('--file <path>', 'its content is the value')
    .option('--ttl <seconds>', 'it expires then; at least 60')
    .option('--metadata <json>', 'kept beside the value')
    .action(
      withSession(
        deps,
        async (
          session,
          key: string,
          value: string | undefined,
          flags: DataFlags & { binding?: string; file?: string; ttl?: string; metadata?: string },
        ) => {
          if ((value === undefined) === (flags.file === undefined))
            throw new Failure('usage', 'Give a value, or --file.');
          const body = flags.file
            ? await readFile(resolve(session.terminal.cwd, flags.file))
            : Buffer.from(value ?? '');
          const store = await openDataStore(session, 'kv', flags.binding, flags);
          const { ttl, metadata } = flags;
          await store.ask('PUT', '/value', { key, ttl, metadata }, body, {
            'content-type': 'application/octet-stream',
          });
          session.printer.result({ key, bytes: body.length }, `set ${key}`);
        },
      ),
    );
  add('delete', 'delete keys')
    .argument('<keys...>')
    .action(
      withSession(deps, async (session, keys: string[], flags: DataFlags & { binding?: string }) => {
        const store = await openDataStore(session, 'kv', flags.binding, flags);
        for (const key of keys) await store.ask('DELETE', '/value', { key });
        session.printer.result({ deleted: keys }, `deleted ${keys.join(', ')}`);
      }),
    );
  return command;
}
