/**
 * Reads the values of secrets from where the command line or the manifest says they are. Values on the command line
 * itself work too, but other users of the machine can see them there.
 */
import { readFile } from 'node:fs/promises';
import { resolve } from 'node:path';
import { Failure } from '../terminal/failure.ts';
import type { Terminal } from '../terminal/terminal.ts';
import type { Project } from './manifest.ts';

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
    secrets[name] =
      value === '-' ? trimEnd(await terminal.readInput()) : await readSource(name, value, terminal.cwd, terminal.env);
  }
  return secrets;
}

/** The secrets that the manifest names. @throws Failure `usage` when one is not there */
export async function readManifestSecrets(project: Project, terminal: Terminal): Promise<Record<string, string>> {
  const secrets: Record<string, string> = {};
  for (const [name, source] of Object.entries(project.manifest.secrets ?? {})) {
    secrets[name] = await readSource(name, source, project.folder, terminal.env);
  }
  return secrets;
}

async function readSource(
  name: string,
  source: string,
  folder: string,
  env: Record<string, string | undefined>,
): Promise<string> {
  if (source.startsWith('@')) {
    const path = resolve(folder, source.slice(1));
    try {
      return trimEnd(await readFile(path, 'utf8'));
    } catch (error) {
      throw new Failure(
        'usage',
        `The secret ${name} cannot be read from ${path} (${(error as NodeJS.ErrnoException).code}).`,
      );
    }
  }
  if (source.startsWith('env:')) {
    const value = env[source.slice(4)];
    if (value === undefined)
      throw new Failure('usage', `The secret ${name} is to come from ${source.slice(4)}, which is not set.`);
    return value;
  }
  return source;
}

/** Editors end files with a line feed that is no part of a token; one is taken off. */
function trimEnd(text: string): string {
  return text.replace(/\r?\n$/, '');
}
