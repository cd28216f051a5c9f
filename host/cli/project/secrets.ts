/**
 * Reads the values of secrets from where the command line or the manifest says they are. Values on the command line
 * itself work too, but other users of the machine can see them there.
 */
import { readFile } from 'node:fs/promises';
import { resolve } from 'node:path';
import { parseEnv } from 'node:util';
import { Failure } from '../terminal/failure.ts';
import type { Terminal } from '../terminal/terminal.ts';
import type { Project } from './manifest.ts';
import { pathInside, readRegularFile } from './regular-file.ts';

/** Larger than any secret that a host takes, bytes. */
const LARGEST = 1024 * 1024;

/** Asks whether the project may have this variable of the environment. @throws Failure when not */
export type AllowVariable = (variable: string, secret: string) => Promise<void>;

/** `KEY=@file`, `KEY=env:NAME`, `KEY=-` (stdin), `KEY=value`. @throws Failure `usage` */
export async function readSecretFlags(flags: string[], terminal: Terminal): Promise<Record<string, string>> {
  const secrets: Record<string, string> = {};
  for (const flag of flags) {
    const match = /^([A-Za-z_]\w*)=(.*)$/s.exec(flag);
    if (!match) {
      const name = flag.split('=')[0]?.slice(0, 64);
      throw new Failure(
        'usage',
        `Not understood: secret ${name}. It takes KEY=@file, KEY=env:NAME, KEY=- or KEY=value.`,
      );
    }
    const [, name = '', value = ''] = match;
    secrets[name] = value === '-' ? trimEnd(await terminal.readInput()) : await readSource(name, value, terminal);
  }
  return secrets;
}

/**
 * The secrets that the manifest names. Somebody else may have written it, so files are those of the project only, and
 * each variable is the user's to allow.
 * @throws Failure `usage` when one is not there
 */
export async function readManifestSecrets(
  project: Project,
  terminal: Pick<Terminal, 'env'>,
  allow: AllowVariable,
): Promise<Record<string, string>> {
  const secrets: Record<string, string> = {};
  for (const [name, source] of Object.entries(project.manifest.secrets ?? {})) {
    secrets[name] = source.startsWith('@')
      ? await readSecretFile(name, source.slice(1), async (file) =>
          readRegularFile(await pathInside(project.folder, file), LARGEST),
        )
      : await readVariable(name, source.slice('env:'.length), terminal.env, allow);
  }
  return secrets;
}

/** `NAME=value` lines, as `.dev.vars` and `.env` have them. @throws Failure `usage` */
export async function readSecretFiles(
  files: string[],
  { cwd }: Pick<Terminal, 'cwd'>,
): Promise<Record<string, string>> {
  const secrets: Record<string, string> = {};
  for (const file of files) {
    const text = await readRegularFile(resolve(cwd, file), LARGEST).catch((error: NodeJS.ErrnoException) => {
      throw new Failure('usage', `Secrets cannot be read from ${file} (${error.code}).`);
    });
    const found = parseEnv(text.toString('utf8'));
    if (Object.keys(found).length === 0)
      throw new Failure('usage', `${file} has no secrets: it takes lines such as NAME=value.`);
    for (const [name, value] of Object.entries(found)) if (value !== undefined) secrets[name] = value;
  }
  return secrets;
}

async function readSource(name: string, source: string, { cwd, env }: Terminal): Promise<string> {
  if (source.startsWith('@')) return readSecretFile(name, source.slice(1), (file) => readFile(resolve(cwd, file)));
  if (source.startsWith('env:')) return readVariable(name, source.slice('env:'.length), env, async () => {});
  return source;
}

async function readVariable(
  name: string,
  variable: string,
  env: Terminal['env'],
  allow: AllowVariable,
): Promise<string> {
  const value = env[variable];
  if (value === undefined)
    throw new Failure('usage', `The secret ${name} is to come from ${variable}, which is not set.`);
  await allow(variable, name);
  return value;
}

async function readSecretFile(name: string, file: string, read: (file: string) => Promise<Buffer>): Promise<string> {
  try {
    return trimEnd((await read(file)).toString('utf8'));
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    const why =
      code === 'EOUTSIDE'
        ? `: the manifest takes files of the project only. Give this one yourself: --secret ${name}=@${file}`
        : ` (${code === 'ENOTREG' ? 'not a regular file' : code})`;
    throw new Failure('usage', `The secret ${name} cannot be read from ${file}${why}.`);
  }
}

/** Editors end files with a line feed that is no part of a token; one is taken off. */
function trimEnd(text: string): string {
  return text.replace(/\r?\n$/, '');
}
