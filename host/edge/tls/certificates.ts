/**
 * The certificates that the edge presents: the operator's files, and those that control puts into a folder, one
 * `<name>.pem` with key and chain each. They are loaded when a caller first asks for a name, and looked at again
 * for a newer version now and then.
 */
import { readFile, stat } from 'node:fs/promises';
import path from 'node:path';
import { createSecureContext, type SecureContext } from 'node:tls';
import { certificateFile, certificateNames } from '../../shared/certificate-folder.ts';

export interface CertificateFiles {
  /** Lowercase names; `*.` at the start stands for one label. */
  names: string[];
  cert: string;
  key: string;
}

export interface CertificatesOptions {
  /** The host's own name, lowercase. */
  ownName?: string | undefined;
  files: CertificateFiles[];
  folder: string | undefined;
  /** Contexts kept in memory; one takes about 50 kB. */
  maxLoaded?: number;
  /** Time between two looks at a file, ms. */
  recheckMs?: number;
}

/** A certificate with its key, in PEM. */
export interface CertificatePair {
  cert: Buffer;
  key: Buffer;
  /** Another one after a renewal. */
  version: number;
}

interface Loaded {
  context: SecureContext;
  modifiedMs: number;
  checkedAt: number;
}

export class Certificates {
  readonly #files = new Map<string, CertificateFiles>();
  readonly #ownName: string | undefined;
  readonly #folder: string | undefined;
  readonly #inFolder: Set<string>;
  readonly #maxLoaded: number;
  readonly #recheckMs: number;
  /** Least recently used first. */
  readonly #loaded = new Map<string, Loaded>();
  readonly #loading = new Map<string, Promise<Loaded | undefined>>();

  constructor({ ownName, files, folder, maxLoaded = 1_000, recheckMs = 60_000 }: CertificatesOptions) {
    this.#ownName = ownName;
    for (const pair of files) for (const name of pair.names) this.#files.set(name.toLowerCase(), pair);
    this.#folder = folder;
    this.#maxLoaded = maxLoaded;
    this.#recheckMs = recheckMs;
    this.#inFolder = new Set(folder === undefined ? [] : certificateNames(folder));
  }

  /** Whether a name can be served over TLS. */
  covers(name: string): boolean {
    return this.#keyOf(name) !== undefined;
  }

  /** Names in the folder may have come, gone or been renewed. */
  changed(name: string): void {
    this.#loaded.delete(name);
    this.#inFolder.delete(name);
    if (this.#folder !== undefined && certificateNames(this.#folder).includes(name)) this.#inFolder.add(name);
  }

  /** @returns undefined where there is no certificate for the name; without waiting where it is loaded */
  contextFor(name: string): SecureContext | undefined | Promise<SecureContext | undefined> {
    const key = this.#keyOf(name);
    if (key === undefined) return undefined;
    return this.#present(key)?.context ?? this.#load(key).then((loaded) => loaded?.context);
  }

  /** The certificate of the host's own name, or the operator's first; undefined while there is none. */
  async own(): Promise<CertificatePair | undefined> {
    const [first] = this.#files.keys();
    const key = (this.#ownName === undefined ? undefined : this.#keyOf(this.#ownName)) ?? first;
    if (key === undefined) return undefined;
    const paths = this.#pathsOf(key);
    try {
      const { mtimeMs } = await stat(paths.cert);
      const [cert, privateKey] = await Promise.all([readFile(paths.cert), readFile(paths.key)]);
      createSecureContext({ cert, key: privateKey });
      return { cert, key: privateKey, version: mtimeMs };
    } catch {
      // Half written, or gone: what is shown now stays.
      return undefined;
    }
  }

  #keyOf(name: string): string | undefined {
    if (this.#files.has(name) || this.#inFolder.has(name)) return name;
    const dot = name.indexOf('.');
    if (dot < 0) return undefined;
    const wildcard = `*${name.slice(dot)}`;
    return this.#files.has(wildcard) || this.#inFolder.has(wildcard) ? wildcard : undefined;
  }

  /** What is loaded and was looked at lately. */
  #present(key: string): Loaded | undefined {
    const present = this.#loaded.get(key);
    if (!present || performance.now() - present.checkedAt >= this.#recheckMs) return undefined;
    this.#loaded.delete(key);
    this.#loaded.set(key, present);
    return present;
  }

  async #load(key: string): Promise<Loaded | undefined> {
    // Many callers of a name may come at once.
    let loading = this.#loading.get(key);
    if (!loading) {
      loading = this.#read(key, this.#loaded.get(key)).finally(() => this.#loading.delete(key));
      this.#loading.set(key, loading);
    }
    return await loading;
  }

  async #read(key: string, present: Loaded | undefined): Promise<Loaded | undefined> {
    const files = this.#pathsOf(key);
    try {
      const { mtimeMs } = await stat(files.cert);
      if (present?.modifiedMs === mtimeMs) {
        present.checkedAt = performance.now();
        return present;
      }
      const [cert, privateKey] = await Promise.all([readFile(files.cert), readFile(files.key)]);
      const context = createSecureContext({
        cert,
        key: privateKey,
        minVersion: 'TLSv1.2',
        sessionIdContext: 'turnpike',
      });
      const loaded = { context, modifiedMs: mtimeMs, checkedAt: performance.now() };
      this.#loaded.delete(key);
      this.#loaded.set(key, loaded);
      this.#trim();
      return loaded;
    } catch {
      // Half written, or gone: what is in memory goes on serving until it is looked at again.
      if (present) present.checkedAt = performance.now();
      return present;
    }
  }

  #pathsOf(key: string): { cert: string; key: string } {
    const pair = this.#files.get(key);
    if (pair) return pair;
    const file = path.join(this.#folder ?? '', certificateFile(key));
    return { cert: file, key: file };
  }

  #trim(): void {
    for (const key of this.#loaded.keys()) {
      if (this.#loaded.size <= this.#maxLoaded) return;
      this.#loaded.delete(key);
    }
  }
}
