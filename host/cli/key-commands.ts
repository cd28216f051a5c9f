/** What the commands of stores with keys have in common: `get` and `delete`, and pages of a list. */
import { createWriteStream } from 'node:fs';
import { resolve } from 'node:path';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { Command } from 'commander';
import { answerBytes, readBytes, readJson } from './answer.ts';
import { addDataOptions, type DataFlags, type DataStore, openDataStore } from './data-store.ts';
import { type CommandDeps, type Session, withSession } from './session.ts';

export interface KeyFlags extends DataFlags {
  binding?: string;
  file?: string;
  prefix?: string;
}

/** @returns the command, and what adds a subcommand with the options of all */
export function keyCommands(kind: 'kv' | 'r2', description: string, deps?: CommandDeps) {
  const command = new Command(kind).description(description);
  const add = (name: string, what: string) =>
    addDataOptions(command.command(name).description(what)).option(
      '--binding <name>',
      'which one; default: the only one',
    );
  add('get', 'print a value')
    .argument('<key>')
    .option('--file <path>', 'write it to a file')
    .action(
      withSession(deps, async (session, key: string, flags: KeyFlags) => {
        const store = await openDataStore(session, kind, flags.binding, flags);
        await writeAnswer(session, await store.ask('GET', '/value', { key }), flags.file);
      }),
    );
  add('delete', 'delete keys')
    .argument('<keys...>')
    .action(
      withSession(deps, async (session, keys: string[], flags: KeyFlags) => {
        const store = await openDataStore(session, kind, flags.binding, flags);
        for (const key of keys) await store.ask('DELETE', '/value', { key });
        session.printer.result({ deleted: keys }, `deleted ${keys.join(', ')}`);
      }),
    );
  return { command, add };
}

/** Every page of a list. @param next cursor of the page after this one */
export async function* pages<Page>(
  store: DataStore,
  prefix: string | undefined,
  next: (page: Page) => string | undefined,
): AsyncGenerator<Page> {
  let cursor: string | undefined;
  do {
    const page = (await readJson(await store.ask('GET', '', { prefix, cursor }))) as Page;
    yield page;
    cursor = next(page);
  } while (cursor !== undefined);
}

/** Bytes as they are. */
async function writeAnswer({ terminal, printer }: Session, answer: Response, file: string | undefined): Promise<void> {
  if (file !== undefined) {
    const path = resolve(terminal.cwd, file);
    await pipeline(Readable.from(answerBytes(answer)), createWriteStream(path));
    printer.result({ file: path }, `written to ${path}`);
  } else if (printer.json) printer.result({ base64: (await readBytes(answer)).toString('base64') }, '');
  else for await (const piece of answerBytes(answer)) terminal.out(piece);
}
