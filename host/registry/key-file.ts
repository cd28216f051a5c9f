/**
 * Where a key of the host is kept: in a file of the data folder or, where several nodes have the same keys, in the registry,
 * sealed with a key that the operator gives to each node.
 */
import { createHash, randomBytes } from 'node:crypto';
import { chmod, readFile } from 'node:fs/promises';
import path from 'node:path';
import { writePrivateFile } from '../shared/private-file.ts';
import { Problem } from '../shared/problem.ts';
import type { Registry } from './index.ts';
import { sealText, unsealText } from './seal.ts';
import { addSetting, readSetting } from './settings.ts';

export interface KeyFile {
  /** For messages. */
  readonly name: string;
  read(): Promise<string | undefined>;
  /** @returns what is kept: another node may have been first */
  add(text: string): Promise<string>;
  replace(text: string): Promise<void>;
  /** Another node, or this one, has replaced it. */
  onChange(listener: () => Promise<void>): void;
  /** Resolves when all living nodes have what it is now. */
  everywhere(): Promise<void>;
}

export type KeyFiles = (name: string) => KeyFile;

/** Of a data folder, which one process has at a time. */
export function keyFilesIn(folder: string): KeyFiles {
  return (name) => keyFileAt(path.join(folder, name));
}

export function keyFileAt(file: string): KeyFile {
  return {
    name: file,
    async read() {
      try {
        const text = await readFile(file, 'utf8');
        // What another user owns stays as that user made it.
        await chmod(file, 0o600).catch(() => undefined);
        return text;
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
        throw error;
      }
    },
    async add(text) {
      await writePrivateFile(file, text);
      return text;
    },
    replace: (text) => writePrivateFile(file, text),
    onChange: () => undefined,
    everywhere: async () => undefined,
  };
}

/** Sealed with the key, to tell a node with another one. */
const PROBE = 'cluster';
const OTHER_KEY =
  'cluster.key is another than the one that the nodes of this cluster have: give each node the same. After turnpike cluster rotate-key that is the new one.';

/**
 * Of all nodes. What the registry lacks is taken from the data folder of the node that needs it first, where that has it.
 * @param secret the operator's, the same on all nodes
 * @throws Problem invalid_config where it is another than that of the other nodes
 */
export async function keyFilesOfNodes(
  { db, client, changes }: Pick<Registry, 'db' | 'client' | 'changes'>,
  secret: string,
  folder: string,
): Promise<KeyFiles> {
  const key = keyOf(secret);
  await addSetting(db, settingOf(PROBE), sealed(key, PROBE, PROBE));
  const probe = (await readSetting(db, settingOf(PROBE))) ?? '';
  if (opened(key, PROBE, probe) === undefined) throw new Problem('invalid_config', OTHER_KEY);
  /** Writes nothing where the keys are sealed with another key by now. */
  const write = async (name: string, text: string, onConflict: string): Promise<void> => {
    await client.execute({
      sql: `INSERT INTO settings (name, value) SELECT CAST(? AS TEXT), CAST(? AS TEXT)
        WHERE EXISTS (SELECT 1 FROM settings AS probe WHERE probe.name = ? AND probe.value = ?)
        ON CONFLICT (name) DO ${onConflict}`,
      args: [settingOf(name), sealed(key, name, text), settingOf(PROBE), probe],
    });
    if ((await readSetting(db, settingOf(PROBE))) !== probe) throw new Problem('invalid_config', OTHER_KEY);
  };
  const inFolder = keyFilesIn(folder);
  return (name) => {
    const topic = `settings:${settingOf(name)}` as const;
    let known: { mark: string; text: string } | undefined;
    const read = async () => {
      const kept = await readSetting(db, settingOf(name));
      if (kept === undefined) return undefined;
      const text = opened(key, name, kept);
      if (text !== undefined) known = { mark: markOf(kept), text };
      // Sealed anew with another key, it is still the same.
      else if (known?.mark !== markOf(kept)) throw new Problem('invalid_config', OTHER_KEY);
      return known?.text;
    };
    return {
      name: `the cluster's ${name}`,
      async read() {
        const kept = await read();
        const own = kept === undefined ? await inFolder(name).read() : undefined;
        return own === undefined ? kept : this.add(own);
      },
      async add(text) {
        await write(name, text, 'NOTHING');
        return (await read()) ?? text;
      },
      replace: (text) => write(name, text, 'UPDATE SET value = excluded.value'),
      onChange: (listener) => changes.on(topic, listener),
      everywhere: () => changes.everywhere([topic]),
    };
  };
}

/**
 * Seals all keys of a cluster anew, all at once. Nodes with the key before go on with what they know, and do not start again.
 * @returns how many; 0: they are sealed with the new key already
 * @throws Problem invalid_config where `from` is not the key in use
 */
export async function sealAnew({ client }: Pick<Registry, 'client'>, from: string, to: string): Promise<number> {
  const [was, next] = [keyOf(from), keyOf(to)];
  const transaction = await client.transaction('write');
  try {
    const { rows } = await transaction.execute(`SELECT name, value FROM settings WHERE name LIKE '${settingOf('%')}'`);
    const kept = rows.map(({ name, value }) => ({
      name: String(name).slice(settingOf('').length),
      value: String(value),
    }));
    const probe = kept.find(({ name }) => name === PROBE);
    if (probe && opened(next, PROBE, probe.value) !== undefined) return 0;
    for (const { name, value } of kept) {
      const text = opened(was, name, value);
      if (text === undefined) throw new Problem('invalid_config', OTHER_KEY);
      const anew = sealed(next, name, text, markOf(value));
      await transaction.execute({ sql: 'UPDATE settings SET value = ? WHERE name = ?', args: [anew, settingOf(name)] });
    }
    await transaction.commit();
    return kept.length;
  } finally {
    if (!transaction.closed) await transaction.rollback();
  }
}

function keyOf(secret: string): Buffer {
  return createHash('sha256').update('turnpike cluster key\0').update(secret).digest();
}

function settingOf(name: string): `key:${string}` {
  return `key:${name}`;
}

function contextOf(name: string): string {
  return `key-file:${name}`;
}

/** @param mark stays when the same text is sealed with another key */
function sealed(key: Buffer, name: string, text: string, mark = randomBytes(6).toString('hex')): string {
  return `${mark}.${sealText(key, text, contextOf(name)).toString('base64')}`;
}

/** @returns undefined where it was sealed with another key */
function opened(key: Buffer, name: string, kept: string): string | undefined {
  try {
    return unsealText(key, Buffer.from(kept.slice(kept.indexOf('.') + 1), 'base64'), contextOf(name));
  } catch {
    return undefined;
  }
}

function markOf(kept: string): string {
  return kept.slice(0, Math.max(0, kept.indexOf('.')));
}
