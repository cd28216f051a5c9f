/**
 * Keys that come from the operator's passphrase: one seals files, one proves that a manifest was made by who knows it.
 * scrypt, AES-256-GCM and HMAC-SHA256 of Node's crypto.
 */
import { createCipheriv, createDecipheriv, createHmac, randomBytes, scrypt, timingSafeEqual } from 'node:crypto';
import { Problem } from '../shared/problem.ts';

/** 32 MB and about 0.1 s a guess. */
const COST = 2 ** 15;
const BLOCK_SIZE = 8;
const SALT_BYTES = 16;
/** 256 MB. */
const LARGEST_WORK = 2 ** 21;
const NONCE_BYTES = 12;
const TAG_BYTES = 16;
const KEY_BYTES = 32;
/** Characters of a passphrase. */
export const SHORTEST = 12;

/** How the keys were derived; in the manifest, in clear. */
export interface Derivation {
  function: 'scrypt';
  cost: number;
  blockSize: number;
  /** Base64. */
  salt: string;
}

export class BackupKeys {
  readonly derivation: Derivation;
  readonly #sealing: Buffer;
  readonly #proving: Buffer;

  private constructor(derivation: Derivation, keys: Buffer) {
    this.derivation = derivation;
    this.#sealing = keys.subarray(0, KEY_BYTES);
    this.#proving = keys.subarray(KEY_BYTES);
  }

  /** Keys for a new backup. @throws Problem invalid_config for a passphrase that is too short */
  static async create(passphrase: string): Promise<BackupKeys> {
    if (passphrase.length < SHORTEST) {
      throw new Problem(
        'invalid_config',
        `A backup needs a passphrase of at least ${SHORTEST} characters: put it in a file and name that in backup.passphraseFile.`,
      );
    }
    const salt = randomBytes(SALT_BYTES).toString('base64');
    return BackupKeys.derive(passphrase, { function: 'scrypt', cost: COST, blockSize: BLOCK_SIZE, salt });
  }

  /** The keys of a backup that exists. @throws Problem invalid_field when the derivation asks for too much */
  static async derive(passphrase: string, derivation: Derivation): Promise<BackupKeys> {
    const { cost, blockSize } = derivation;
    // A manifest is not trusted yet: it must not make this process take all memory.
    if (
      derivation.function !== 'scrypt' ||
      cost > 2 ** 20 ||
      blockSize > 16 ||
      cost * blockSize > LARGEST_WORK ||
      (cost & (cost - 1)) !== 0 ||
      cost < 2
    ) {
      throw new Problem('invalid_field', 'This version cannot read this kind of backup; update turnpike.');
    }
    const keys = await new Promise<Buffer>((resolve, reject) => {
      const options = { N: cost, r: blockSize, p: 1, maxmem: 256 * cost * blockSize };
      scrypt(
        passphrase.normalize('NFC'),
        Buffer.from(derivation.salt, 'base64'),
        2 * KEY_BYTES,
        options,
        (error, key) => (error ? reject(error) : resolve(key)),
      );
    });
    return new BackupKeys(derivation, keys);
  }

  /** @param path binds the bytes to their place, so that files cannot be swapped */
  seal(plain: Uint8Array, path: string): Buffer {
    const nonce = randomBytes(NONCE_BYTES);
    const cipher = createCipheriv('aes-256-gcm', this.#sealing, nonce);
    cipher.setAAD(Buffer.from(path));
    const body = Buffer.concat([cipher.update(plain), cipher.final()]);
    return Buffer.concat([nonce, cipher.getAuthTag(), body]);
  }

  /** @throws Error when the bytes or the path are not what was sealed */
  unseal(sealed: Buffer, path: string): Buffer {
    const decipher = createDecipheriv('aes-256-gcm', this.#sealing, sealed.subarray(0, NONCE_BYTES));
    decipher.setAAD(Buffer.from(path));
    decipher.setAuthTag(sealed.subarray(NONCE_BYTES, NONCE_BYTES + TAG_BYTES));
    return Buffer.concat([decipher.update(sealed.subarray(NONCE_BYTES + TAG_BYTES)), decipher.final()]);
  }

  prove(text: string): string {
    return createHmac('sha256', this.#proving).update(text).digest('hex');
  }

  isProof(text: string, proof: string): boolean {
    const expected = Buffer.from(this.prove(text));
    const given = Buffer.from(proof);
    return expected.length === given.length && timingSafeEqual(expected, given);
  }
}
