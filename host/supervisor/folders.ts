/** The layout of the data folder; README's "what is where" is this. */
import { createHash } from 'node:crypto';
import { lstatSync, mkdirSync, rmSync, symlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';

/** A unix socket's path holds 107 bytes; `/<40 of a slug>/payments.sock` takes 54 of them. */
const LONGEST_RUN_FOLDER = 50;

export interface Folders {
  data: string;
  registry: string;
  secretsKey: string;
  /** `<tenant>/kv`, `/r2`, `/sql`, `/logs` */
  tenants: string;
  code: string;
  certificates: string;
  /** Sockets of the parts and, in one folder per slug, of the instances. Nothing worth keeping. */
  run: string;
}

/** Makes what is missing; private to the user that runs the host. */
export function openFolders(dataFolder: string): Folders {
  const data = path.resolve(dataFolder);
  const folders: Folders = {
    data,
    registry: path.join(data, 'registry.db'),
    secretsKey: path.join(data, 'secrets.key'),
    tenants: path.join(data, 'tenants'),
    code: path.join(data, 'code'),
    certificates: path.join(data, 'certificates'),
    run: path.join(data, 'run'),
  };
  mkdirSync(data, { recursive: true, mode: 0o700 });
  for (const folder of [folders.tenants, folders.code, folders.certificates])
    mkdirSync(folder, { recursive: true, mode: 0o700 });
  return { ...folders, run: openRunFolder(folders.run) };
}

/** Sockets of a deep data folder live in the system's temporary folder; `<data>/run` then points there. */
function openRunFolder(wanted: string): string {
  const known = lstatSync(wanted, { throwIfNoEntry: false });
  if (known?.isSymbolicLink()) rmSync(wanted);
  if (Buffer.byteLength(wanted) <= LONGEST_RUN_FOLDER) {
    mkdirSync(wanted, { recursive: true, mode: 0o700 });
    return wanted;
  }
  if (known?.isDirectory()) rmSync(wanted, { recursive: true });
  const short = path.join(tmpdir(), `turnpike-${createHash('sha256').update(wanted).digest('hex').slice(0, 12)}`);
  mkdirSync(short, { recursive: true, mode: 0o700 });
  symlinkSync(short, wanted);
  return short;
}
