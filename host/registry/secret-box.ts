/**
 * Encryption of tenants' secrets at rest: AES-256-GCM, keys in a key file, on one box beside the database and never in it.
 * Several keys may be known at once; the newest seals, all open. Rotation adds a key and reseals.
 */
import { randomBytes } from 'node:crypto';
import path from 'node:path';
import { z } from 'zod';
import { Problem } from '../shared/problem.ts';
import { type KeyFile, keyFileAt } from './key-file.ts';
import { sealText, unsealText } from './seal.ts';

const KEY_BYTES = 32;

const contentSchema = z.strictObject({
  current: z.string(),
  /** Key id -> 32 bytes, base64. */
  keys: z.record(z.string(), z.base64()),
});
type Content = z.infer<typeof contentSchema>;

export interface Sealed {
  keyId: string;
  /** As seal.ts writes it. */
  sealed: Buffer;
}

export class SecretBox {
  readonly #file: KeyFile;
  #content: Content;

  private constructor(file: KeyFile, content: Content) {
    this.#file = file;
    this.#content = content;
    file.onChange(() => this.reload());
  }

  /**
   * Opens the key file, making one with a fresh key if there is none.
   * @param isNeeded whether something is sealed already, which a fresh key would not open
   * @throws Problem invalid_config when the file that is needed is missing
   */
  static async open(given: string | KeyFile, isNeeded = async () => false): Promise<SecretBox> {
    const file = typeof given === 'string' ? keyFileAt(given) : given;
    let text = await file.read();
    if (text === undefined) {
      if (await isNeeded()) {
        throw new Problem(
          'invalid_config',
          `${file.name} is missing, and the registry holds tenants' secrets that only its keys open. Put the file back, or restore the data folder from a backup. If it is lost for good, remove the secrets (sqlite3 ${path.join(path.dirname(file.name), 'registry.db')} 'DELETE FROM secrets'): their owners then have to set them again.`,
        );
      }
      text = await file.add(textOf(withNewKey({ current: '', keys: {} })));
    }
    return new SecretBox(file, contentOf(text, file));
  }

  get currentKeyId(): string {
    return this.#content.current;
  }

  /** @param context binds the ciphertext to its place (tenant and name), so that rows cannot be swapped */
  seal(plain: string, context: string): Sealed {
    const { current } = this.#content;
    return { keyId: current, sealed: sealText(this.#key(current), plain, context) };
  }

  /** @throws Error when the key is unknown, or the bytes or the context are not those that were sealed */
  unseal({ keyId, sealed }: Sealed, context: string): string {
    return unsealText(this.#key(keyId), sealed, context);
  }

  /** As it is kept: another node may have changed it. */
  async reload(): Promise<void> {
    const text = await this.#file.read();
    if (text !== undefined) this.#content = contentOf(text, this.#file);
  }

  /** Adds a key and makes it the current one; kept, and known to all nodes, before it is used. */
  async addKey(): Promise<void> {
    await this.reload();
    await this.#replace(withNewKey(this.#content));
    await this.#file.everywhere();
  }

  /** Forgets all keys but these. Call only after everything was resealed. */
  async keepKeys(ids: string[]): Promise<void> {
    const { current, keys } = this.#content;
    await this.#replace({ current, keys: Object.fromEntries(Object.entries(keys).filter(([id]) => ids.includes(id))) });
  }

  async #replace(content: Content): Promise<void> {
    await this.#file.replace(textOf(content));
    this.#content = content;
  }

  #key(id: string): Buffer {
    const key = this.#content.keys[id];
    if (key === undefined) throw new Error(`the key ${id} of a secret is not in ${path.basename(this.#file.name)}`);
    return Buffer.from(key, 'base64');
  }
}

function withNewKey(content: Content): Content {
  const id = randomBytes(4).toString('hex');
  return { current: id, keys: { ...content.keys, [id]: randomBytes(KEY_BYTES).toString('base64') } };
}

function textOf(content: Content): string {
  return `${JSON.stringify(content, null, 2)}\n`;
}

function contentOf(text: string, file: KeyFile): Content {
  try {
    return contentSchema.parse(JSON.parse(text));
  } catch {
    throw new Error(`${file.name} is not a key file`);
  }
}
