/**
 * Certificates of several nodes, as one of them has them. What any node has put into PostgreSQL is shown by the edges of
 * this one: certificates, from a folder of copies, and proofs for the authority, which may ask any node. One node orders.
 */
import { readFile, rename, rm, writeFile } from 'node:fs/promises';
import path from 'node:path';
import type { ChallengeBoard } from '../certificates/challenge-board.ts';
import type { CertificatePlace, ShowingEdges } from '../certificates/index.ts';
import type { CertificateRenewer } from '../certificates/renewer.ts';
import { subjectOf } from '../certificates/store.ts';
import { unfenced } from '../registry/fences.ts';
import type { Registry } from '../registry/index.ts';
import type { KeyFiles } from '../registry/key-file.ts';
import { SealedTexts } from '../registry/postgres/sealed-texts.ts';
import { certificateFile, certificateNames } from '../shared/certificate-folder.ts';
import { Mutex } from '../shared/mutex.ts';

/** Of the node that orders. */
const ORDERS = 'certificates';
const TOPIC = 'certificates';
/** Proofs, among the texts, by the token or the name that they are for. No file has such a name. */
const HTTP = 'http-01/';
const TLS = 'tls-alpn-01/';
/** At once: a node that is new has thousands to read. */
const READS = 4;

export interface SharedCertificatesParts {
  registry: Pick<Registry, 'client' | 'leases' | 'changes'>;
  keyFiles: KeyFiles;
  /** Of copies. */
  folder: string;
  board: ChallengeBoard;
  edges: ShowingEdges;
}

export class SharedCertificates implements CertificatePlace {
  readonly store: SealedTexts;
  readonly #parts: SharedCertificatesParts;
  readonly #turns = new Mutex();
  /** What is shown here, by its mark. */
  readonly #known = new Map<string, string>();
  #renewer: CertificateRenewer | undefined;

  private constructor(parts: SharedCertificatesParts, store: SealedTexts) {
    this.#parts = parts;
    this.store = store;
  }

  /** Resolves when the folder has what there is: edges read it at their start. */
  static async open(parts: SharedCertificatesParts): Promise<SharedCertificates> {
    const { registry, keyFiles, folder } = parts;
    const shared = new SharedCertificates(parts, await SealedTexts.open(registry.client, keyFiles));
    registry.changes.on(TOPIC, () => shared.#follow());
    await shared.#follow();
    const gone = certificateNames(folder).map(certificateFile);
    for (const file of gone) if (!shared.#known.has(file)) await rm(path.join(folder, file), { force: true });
    return shared;
  }

  /** From here on this node orders whenever no other does. */
  async start(renewer: CertificateRenewer): Promise<void> {
    const { leases, changes } = this.#parts.registry;
    this.#renewer = renewer;
    await renewer.start();
    changes.on('domains', () => renewer.wake());
    // What is ordered goes on after that.
    const gained = () => unfenced(async () => renewer.wake());
    await leases.keep(ORDERS, { gained, lost: () => undefined });
  }

  readonly turn = (work: () => Promise<void>): Promise<unknown> =>
    unfenced(() =>
      this.#parts.registry.leases.run(ORDERS, async () => {
        await this.#follow();
        try {
          await work();
        } finally {
          // Of whoever ordered before, and ended within it.
          const left = [...this.#known.keys()].filter((name) => name.startsWith(HTTP) || name.startsWith(TLS));
          await this.store.remove(...left).catch(() => undefined);
        }
      }),
    );

  readonly changed = async (): Promise<void> => {
    await this.#follow();
    await this.#parts.registry.changes.everywhere([TOPIC]);
  };

  readonly proofs: CertificatePlace['proofs'] = {
    http: (_name, token, body) => this.#prove(`${HTTP}${token}`, body),
    tls: (name, pem) => this.#prove(`${TLS}${name}`, pem),
  };

  /** Resolves when each living node shows the proof. */
  async #prove(name: string, text: string | undefined): Promise<void> {
    if (text === undefined) return this.store.remove(name);
    await this.store.write(name, text);
    await this.changed();
  }

  /** Resolves when all that is in PostgreSQL by now is shown here. */
  #follow(): Promise<void> {
    return this.#turns.round(async () => {
      const marks = await this.store.marks();
      for (const name of [...this.#known.keys()].filter((known) => !marks.has(known))) {
        await this.#show(name, undefined);
        this.#known.delete(name);
      }
      const changed = [...marks].filter(([name, mark]) => this.#known.get(name) !== mark).values();
      // All end before the next round begins.
      const ends = await Promise.allSettled(
        Array.from({ length: READS }, async () => {
          for (const [name, mark] of changed) {
            // Gone by now: another change, which is heard.
            await this.#show(name, await this.store.read(name));
            this.#known.set(name, mark);
          }
        }),
      );
      const failed = ends.find((end) => end.status === 'rejected');
      if (failed) throw failed.reason;
    });
  }

  /** @param text undefined: it is gone */
  async #show(name: string, text: string | undefined): Promise<void> {
    const { board, edges, folder } = this.#parts;
    if (name.startsWith(HTTP)) return board.show(name.slice(HTTP.length), text);
    if (name.startsWith(TLS)) return void (await edges.setTlsChallenge({ name: name.slice(TLS.length), pem: text }));
    const subject = subjectOf(name);
    if (subject?.is === 'certificate') {
      const file = path.join(folder, name);
      if (text === undefined) await rm(file, { force: true });
      else if ((await readFile(file, 'utf8').catch(() => '')) !== text) await writeCopy(file, text);
      await edges.certificateChanged({ name: subject.name });
    }
    this.#renewer?.learn(name, text);
  }
}

/** As a whole or not; compared with the original at each start, so it need not outlive a power cut. */
async function writeCopy(file: string, text: string): Promise<void> {
  await writeFile(`${file}.tmp`, text, { mode: 0o600 });
  await rename(`${file}.tmp`, file);
}
