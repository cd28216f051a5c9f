/** The layout of the data folder; "What is where" in config/GO-LIVE.md is this. */
import { createHash } from 'node:crypto';
import { accessSync, constants, lstatSync, mkdirSync, mkdtempSync, readlinkSync, rmSync, symlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';

/** A unix socket's path holds 107 bytes; `/<40 of a slug>/s/kv.<6 of a digest>.sock` takes 57 of them. */
const LONGEST_RUN_FOLDER = 50;

export interface Folders {
  data: string;
  registry: string;
  /** What `registry` is called once its host has moved into a cluster, or was about to: no host starts on it, and pays twice. */
  movedRegistry: string;
  secretsKey: string;
  /** `<tenant>/kv`, `/r2`, `/sql`, `/logs` */
  tenants: string;
  code: string;
  certificates: string;
  /** Charts of the last 30 days (host/observability/history.ts). */
  history: string;
  /** Sockets of the parts and, in one folder per slug, of the instances. Nothing worth keeping. */
  run: string;
}

/**
 * Makes what is missing; private to the user that runs the host.
 * @throws Error of the system
 */
export function openFolders(dataFolder: string): Folders {
  const data = path.resolve(dataFolder);
  const folders: Folders = {
    data,
    registry: path.join(data, 'registry.db'),
    movedRegistry: path.join(data, 'registry.db.moved'),
    secretsKey: path.join(data, 'secrets.key'),
    tenants: path.join(data, 'tenants'),
    code: path.join(data, 'code'),
    certificates: path.join(data, 'certificates'),
    history: path.join(data, 'history.ring'),
    run: path.join(data, 'run'),
  };
  mkdirSync(data, { recursive: true, mode: 0o700 });
  // On a disk that may only be read, Node's mkdir says ENOENT.
  accessSync(data, constants.R_OK | constants.W_OK | constants.X_OK);
  for (const folder of [folders.tenants, folders.code, folders.certificates])
    mkdirSync(folder, { recursive: true, mode: 0o700 });
  return { ...folders, run: openRunFolder(folders.run) };
}

/** Sockets of a deep data folder live in a folder below the system's temporary one; `<data>/run` then points there. */
function openRunFolder(wanted: string): string {
  const known = lstatSync(wanted, { throwIfNoEntry: false });
  if (Buffer.byteLength(wanted) <= LONGEST_RUN_FOLDER) {
    if (known?.isSymbolicLink()) rmSync(wanted);
    mkdirSync(wanted, { recursive: true, mode: 0o700 });
    return wanted;
  }
  // A copy of a data folder points to the sockets of the original.
  const own = path.join(tmpdir(), `turnpike-${createHash('sha256').update(wanted).digest('hex').slice(0, 8)}-`);
  const last = known?.isSymbolicLink() ? readlinkSync(wanted) : '';
  if (last.startsWith(own) && isPrivate(last)) return last;
  // A name that nobody can foretell: others may write to the temporary folder, too.
  const short = mkdtempSync(own);
  rmSync(wanted, { recursive: true, force: true });
  symlinkSync(short, wanted);
  return short;
}

/** A folder of this user that nobody else may look into. */
function isPrivate(folder: string): boolean {
  const found = lstatSync(folder, { throwIfNoEntry: false });
  if (!found?.isDirectory()) return false;
  return found.uid === process.getuid?.() && (found.mode & 0o077) === 0;
}
