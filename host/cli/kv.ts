/** `turnpike kv`: keys and values of a deployment's KV bindings. */
import { readFile } from 'node:fs/promises';
import { resolve } from 'node:path';
import type { Command } from 'commander';
import { openDataStore } from './data-store.ts';
import { type KeyFlags, keyCommands, pages } from './key-commands.ts';
import { type CommandDeps, withSession } from './session.ts';
import { Failure } from './terminal/failure.ts';

interface KvPage {
  keys: { name: string; expiration?: number; metadata?: unknown }[];
  list_complete: boolean;
  cursor?: string;
}
type PutFlags = KeyFlags & { ttl?: string; metadata?: string };

export function kvCommand(deps?: CommandDeps): Command {
  const { command, add } = keyCommands('kv', 'keys and values of your deployment', deps);
  add('list', 'list keys')
    .option('--prefix <text>', 'only keys that begin with it')
    .action(
      withSession(deps, async (session, flags: KeyFlags) => {
        const store = await openDataStore(session, 'kv', flags.binding, flags);
        const keys: KvPage['keys'] = [];
        for await (const page of pages<KvPage>(store, flags.prefix, (one) =>
          one.list_complete ? undefined : one.cursor,
        ))
          keys.push(...page.keys);
        session.printer.result({ keys }, keys.map(({ name }) => name).join('\n'));
      }),
    );
  add('put', 'set a value')
    .argument('<key>')
    .argument('[value]')
    .option('--file <path>', 'its content is the value')
    .option('--ttl <seconds>', 'it expires then; at least 60')
    .option('--metadata <json>', 'kept beside the value')
    .action(
      withSession(deps, async (session, key: string, value: string | undefined, flags: PutFlags) => {
        const { file, ttl, metadata } = flags;
        if ((value === undefined) === (file === undefined)) throw new Failure('usage', 'Give a value, or --file.');
        const body = file ? await readFile(resolve(session.terminal.cwd, file)) : Buffer.from(value ?? '');
        const store = await openDataStore(session, 'kv', flags.binding, flags);
        const type = { 'content-type': 'application/octet-stream' };
        await store.ask('PUT', '/value', { key, ttl, metadata }, body, type);
        session.printer.result({ key, bytes: body.length }, `set ${key}`);
      }),
    );
  return command;
}
