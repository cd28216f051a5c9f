/**
 * Encryption of tenants' secrets at rest: AES-256-GCM, keys in a file of mode 0600 beside the database, never in it.
 * Several keys may be known at once; the newest seals, all open. Rotation adds a key and reseals.
 */
import { createCipheriv, createDecipheriv, randomBytes } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import path from 'node:path';
import { z } from 'zod';
import { writePrivateFile } from '../shared/private-file.ts';
import { Problem } from '../shared/problem.ts';

const KEY_BYTES = 32;
const NONCE_BYTES = 12;
const TAG_BYTES = 16;

const keyFileSchema = z.strictObject({
  current: z.string(),
  /** Key id -> 32 bytes, base64. */
  keys: z.record(z.string(), z.base64()),
});
type KeyFile = z.infer<typeof keyFileSchema>;

export interface Sealed {
  keyId: string;
  /** nonce (12 bytes), tag (16 bytes), ciphertext. */
  sealed: Buffer;
}

export class SecretBox {
  readonly #file: string;
  #content: KeyFile;

  private constructor(file: string, content: KeyFile) {
    this.#file = file;
    this.#content = content;
  }

  /**
   * Opens the key file, making one with a fresh key if there is none.
   * @param isNeeded whether something is sealed already, which a fresh key would not open
   * @throws Problem invalid_config when the file that is needed is missing
   */
  static async open(file: string, isNeeded = async () => false): Promise<SecretBox> {
    try {
      return new SecretBox(file, keyFileSchema.parse(JSON.parse(await readFile(file, 'utf8'))));
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw new Error(`${file} is not a key file`);
      if (await isNeeded()) {
        throw new Problem(
          'invalid_config',
          `${file} is missing, and the registry holds tenants' secrets that only its keys open. Put the file back, or restore the data folder from a backup. If it is lost for good, remove the secrets (sqlite3 ${path.join(path.dirname(file), 'registry.db')} 'DELETE FROM secrets'): their owners then have to set them again.`,
        );
      }
      const content = withNewKey({ current: '', keys: {} });
      await write(file, content);
      return new SecretBox(file, content);
    }
  }

  get currentKeyId(): string {
    return this.#content.current;
  }

  /** @param context binds the ciphertext to its place (tenant and name), so that rows cannot be swapped */
  seal(plain: string, context: string): Sealed {
    const nonce = randomBytes(NONCE_BYTES);
    const cipher = createCipheriv('aes-256-gcm', this.#key(this.#content.current), nonce);
    cipher.setAAD(Buffer.from(context));
    const body = Buffer.concat([cipher.update(plain, 'utf8'), cipher.final()]);
    return { keyId: this.#content.current, sealed: Buffer.concat([nonce, cipher.getAuthTag(), body]) };
  }

  /** @throws Error when the key is unknown, or the bytes or the context are not those that were sealed */
  unseal({ keyId, sealed }: Sealed, context: string): string {
    const decipher = createDecipheriv('aes-256-gcm', this.#key(keyId), sealed.subarray(0, NONCE_BYTES));
    decipher.setAAD(Buffer.from(context));
    decipher.setAuthTag(sealed.subarray(NONCE_BYTES, NONCE_BYTES + TAG_BYTES));
    return Buffer.concat([decipher.update(sealed.subarray(NONCE_BYTES + TAG_BYTES)), decipher.final()]).toString(
      'utf8',
    );
  }

  /** Adds a key and makes it the current one; on disk before it is used. */
  async addKey(): Promise<void> {
    const content = withNewKey(this.#content);
    await write(this.#file, content);
    this.#content = content;
  }

  /** Forgets all keys but the current one. Call only after everything was resealed. */
  async dropOldKeys(): Promise<void> {
    const { current } = this.#content;
    const content = { current, keys: { [current]: this.#content.keys[current] ?? '' } };
    await write(this.#file, content);
    this.#content = content;
  }

  #key(id: string): Buffer {
    const key = this.#content.keys[id];
    if (key === undefined) throw new Error(`the key ${id} of a secret is not in ${path.basename(this.#file)}`);
    return Buffer.from(key, 'base64');
  }
}

function withNewKey(content: KeyFile): KeyFile {
  const id = randomBytes(4).toString('hex');
  return { current: id, keys: { ...content.keys, [id]: randomBytes(KEY_BYTES).toString('base64') } };
}

function write(file: string, content: KeyFile): Promise<void> {
  return writePrivateFile(file, `${JSON.stringify(content, null, 2)}\n`);
}
