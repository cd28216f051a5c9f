/**
 * Where the texts of ACME are kept by name: certificates with their keys, failures, orders, the account's key. On one box
 * that is a folder; several nodes have the registry.
 */
import { readdir, readFile, rm } from 'node:fs/promises';
import path from 'node:path';
import { CERTIFICATE_SUFFIX, certificateFile } from '../shared/certificate-folder.ts';
import { writePrivateFile } from '../shared/private-file.ts';

export interface CertificateStore {
  names(): Promise<string[]>;
  read(name: string): Promise<string | undefined>;
  /** @returns what is kept: another node may have been first */
  add(name: string, text: string): Promise<string>;
  write(name: string, text: string): Promise<void>;
  remove(...names: string[]): Promise<void>;
}

/** The account's private key. */
export const ACCOUNT = 'account.key';
const FAILURE_SUFFIX = '.json';
const ORDER_SUFFIX = '.order';

/** Why there is no certificate for a name, or no newer one. */
export function failureFile(name: string): string {
  return withSuffix(name, FAILURE_SUFFIX);
}

/** An order under way, by which it goes on after its process has ended. */
export function orderFile(name: string): string {
  return withSuffix(name, ORDER_SUFFIX);
}

function withSuffix(name: string, suffix: string): string {
  return `${certificateFile(name).slice(0, -CERTIFICATE_SUFFIX.length)}${suffix}`;
}

/** What the text of a name in a store is about; undefined: no certificate. */
export function subjectOf(file: string): { name: string; is: 'certificate' | 'failure' } | undefined {
  const [, name, suffix] = /^([^/]+)(\.pem|\.json)$/.exec(file) ?? [];
  if (name === undefined) return undefined;
  return { name: name.replace(/^_wildcard/, '*'), is: suffix === CERTIFICATE_SUFFIX ? 'certificate' : 'failure' };
}

/** Of one box. */
export function folderStore(folder: string): CertificateStore {
  const at = (name: string) => path.join(folder, name);
  const write = (name: string, text: string) => writePrivateFile(at(name), text);
  return {
    // Drafts of files that were not finished are none.
    names: async () => (await readdir(folder)).filter((name) => !name.endsWith('.tmp')),
    async read(name) {
      try {
        return await readFile(at(name), 'utf8');
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
        throw error;
      }
    },
    async add(name, text) {
      await write(name, text);
      return text;
    },
    write,
    async remove(...names) {
      for (const name of names) await rm(at(name), { force: true });
    },
  };
}

/** Makes one store what another is; again after it was killed. Challenges stay. @returns how many certificates there are */
export async function copyStore(from: CertificateStore, to: CertificateStore): Promise<number> {
  const names = (await from.names()).filter((name) => !name.includes('/'));
  await to.remove(...(await to.names()).filter((name) => !names.includes(name)));
  for (const name of names) {
    const text = (await from.read(name)) ?? '';
    if ((await to.read(name)) !== text) await to.write(name, text);
    if ((await to.read(name)) !== text) throw new Error(`${name} is another than was sent`);
  }
  return names.filter((name) => subjectOf(name)?.is === 'certificate').length;
}
