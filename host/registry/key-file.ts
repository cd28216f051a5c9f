/**
 * Where a key of the host is kept: in a file of the data folder or, where several nodes have the same keys, in the registry,
 * sealed with a key that the operator gives to each node.
 */
import { createHash } from 'node:crypto';
import { chmod, readFile } from 'node:fs/promises';
import path from 'node:path';
import { writePrivateFile } from '../shared/private-file.ts';
import { Problem } from '../shared/problem.ts';
import type { Registry } from './index.ts';
import { sealText, unsealText } from './seal.ts';
import { addSetting, readSetting, savedSetting } from './settings.ts';

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

/**
 * Of all nodes. What the registry lacks is taken from the data folder of the node that needs it first, where that has it.
 * @param secret the operator's, the same on all nodes
 * @throws Problem invalid_config where it is another than that of the other nodes
 */
export async function keyFilesOfNodes(registry: Registry, secret: string, folder: string): Promise<KeyFiles> {
  const key = createHash('sha256').update('turnpike cluster key\0').update(secret).digest();
  const { db, changes } = registry;
  const inFolder = keyFilesIn(folder);
  const keyFile: KeyFiles = (name) => {
    const setting = `key:${name}`;
    const context = `key-file:${name}`;
    const read = async () => {
      const kept = await readSetting(db, setting);
      if (kept === undefined) return undefined;
      try {
        return unsealText(key, Buffer.from(kept, 'base64'), context);
      } catch {
        throw new Problem(
          'invalid_config',
          'cluster.key is another than the one that the nodes of this cluster have: give each node the same.',
        );
      }
    };
    const sealed = (text: string) => sealText(key, text, context).toString('base64');
    return {
      name: `the cluster's ${name}`,
      async read() {
        const kept = await read();
        const own = kept === undefined ? await inFolder(name).read() : undefined;
        return own === undefined ? kept : this.add(own);
      },
      async add(text) {
        await addSetting(db, setting, sealed(text));
        return (await read()) ?? text;
      },
      replace: async (text) => void (await savedSetting(db, setting, sealed(text))),
      onChange: (listener) => changes.on(`settings:${setting}`, listener),
      everywhere: () => changes.everywhere(`settings:${setting}`),
    };
  };
  await keyFile(PROBE).add(PROBE);
  return keyFile;
}
