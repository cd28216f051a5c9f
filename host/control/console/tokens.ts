/**
 * The operator's tokens, kept as hashes: the one that the first start prints, which may do everything, and one that may
 * only read, where the operator made it. A new one takes the place of the old one at once.
 */
import { createHash, randomBytes, timingSafeEqual } from 'node:crypto';
import type { Database, Registry } from '../../registry/index.ts';
import { addSetting, readSetting, savedSetting } from '../../registry/settings.ts';

/** `reader` may GET, and nothing else. */
export type Role = 'operator' | 'reader';

const SETTINGS: Record<Role, string> = { operator: 'operator-token-sha256', reader: 'operator-reader-token-sha256' };
const PREFIX: Record<Role, string> = { operator: 'op_', reader: 'opr_' };
const NO_HASH = '0'.repeat(64);

export class OperatorTokens {
  readonly #db: Database;
  readonly #hashes: Record<Role, string>;
  readonly #listeners: ((role: Role) => void)[] = [];
  /** The operator's, when it was just made. It is kept by `keepFresh`. */
  readonly fresh: string | undefined;

  private constructor(db: Database, hashes: Record<Role, string>, fresh: string | undefined) {
    this.#db = db;
    this.#hashes = hashes;
    this.fresh = fresh;
  }

  static async open({ db, changes }: Pick<Registry, 'db' | 'changes'>): Promise<OperatorTokens> {
    const tokens = await OperatorTokens.#read(db);
    for (const role of ['operator', 'reader'] as const) {
      changes.on(`settings:${SETTINGS[role]}`, () => tokens.#reload(role));
      // What was changed before that was listened to.
      await tokens.#reload(role);
    }
    return tokens;
  }

  static async #read(db: Database): Promise<OperatorTokens> {
    const [kept, reader] = [await readSetting(db, SETTINGS.operator), await readSetting(db, SETTINGS.reader)];
    if (kept !== undefined) return new OperatorTokens(db, { operator: kept, reader: reader ?? NO_HASH }, undefined);
    const fresh = newToken('operator');
    return new OperatorTokens(db, { operator: sha256(fresh).toString('hex'), reader: NO_HASH }, fresh);
  }

  /** For when it is about to be shown: a first start that fails before shows nothing, and the next makes another. */
  async keepFresh(): Promise<void> {
    if (this.fresh !== undefined) await addSetting(this.#db, SETTINGS.operator, this.#hashes.operator);
  }

  /** As whom a token lets one act; takes as long for each that is wrong. */
  roleOf(token: string): Role | undefined {
    const hash = sha256(token);
    const isOperator = timingSafeEqual(hash, Buffer.from(this.#hashes.operator, 'hex'));
    const isReader = timingSafeEqual(hash, Buffer.from(this.#hashes.reader, 'hex'));
    return isOperator ? 'operator' : isReader ? 'reader' : undefined;
  }

  /** Runs when a token was replaced or taken back. */
  onChange(listener: (role: Role) => void): void {
    this.#listeners.push(listener);
  }

  /** @returns the new token; only its hash is kept, so this is the one time that it can be shown */
  async replace(role: Role): Promise<string> {
    const token = newToken(role);
    await this.#set(role, sha256(token).toString('hex'));
    return token;
  }

  async takeBackReader(): Promise<void> {
    await this.#set('reader', NO_HASH);
  }

  async #set(role: Role, hash: string): Promise<void> {
    await savedSetting(this.#db, SETTINGS[role], hash);
    this.#become(role, hash);
  }

  /** Another node may have replaced it. */
  async #reload(role: Role): Promise<void> {
    const hash = await readSetting(this.#db, SETTINGS[role]);
    if (hash !== undefined && hash !== this.#hashes[role]) this.#become(role, hash);
  }

  #become(role: Role, hash: string): void {
    this.#hashes[role] = hash;
    for (const listener of this.#listeners) listener(role);
  }
}

function newToken(role: Role): string {
  return `${PREFIX[role]}${randomBytes(24).toString('base64url')}`;
}

function sha256(text: string): Buffer {
  return createHash('sha256').update(text).digest();
}
