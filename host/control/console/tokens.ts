/**
 * The operator's tokens, kept as hashes: the one that the first start prints, which may do everything, and one that may
 * only read, where the operator made it. A new one takes the place of the old one at once.
 */
import { createHash, randomBytes, timingSafeEqual } from 'node:crypto';
import type { Changes } from '../../registry/changes.ts';
import type { Database, Registry } from '../../registry/index.ts';
import { addSetting, readSetting, savedSetting } from '../../registry/settings.ts';

/** `reader` may GET, and nothing else. */
export type Role = 'operator' | 'reader';

const SETTINGS: Record<Role, string> = { operator: 'operator-token-sha256', reader: 'operator-reader-token-sha256' };
const PREFIX: Record<Role, string> = { operator: 'op_', reader: 'opr_' };
const NO_HASH = '0'.repeat(64);
const MARK_DIGITS = 16;

type Parts = Pick<Registry, 'db' | 'changes'>;

export class OperatorTokens {
  readonly #db: Database;
  readonly #changes: Changes;
  readonly #hashes: Record<Role, string>;
  readonly #listeners: ((role: Role) => void)[] = [];
  #fresh: string | undefined;

  private constructor({ db, changes }: Parts, hashes: Record<Role, string>, fresh: string | undefined) {
    this.#db = db;
    this.#changes = changes;
    this.#hashes = hashes;
    this.#fresh = fresh;
  }

  static async open(parts: Parts): Promise<OperatorTokens> {
    const { changes } = parts;
    const tokens = await OperatorTokens.#read(parts);
    for (const role of ['operator', 'reader'] as const) {
      changes.on(`settings:${SETTINGS[role]}`, () => tokens.#reload(role));
      // What was changed before that was listened to.
      await tokens.#reload(role);
    }
    return tokens;
  }

  static async #read(parts: Parts): Promise<OperatorTokens> {
    const { db } = parts;
    const [kept, reader] = [await readSetting(db, SETTINGS.operator), await readSetting(db, SETTINGS.reader)];
    if (kept !== undefined) return new OperatorTokens(parts, { operator: kept, reader: reader ?? NO_HASH }, undefined);
    const fresh = newToken('operator');
    return new OperatorTokens(parts, { operator: sha256(fresh).toString('hex'), reader: NO_HASH }, fresh);
  }

  /** The operator's, when it was just made. It is kept by `keepFresh`. */
  get fresh(): string | undefined {
    return this.#fresh;
  }

  /** For when it is about to be shown: a first start that fails before shows nothing, and the next makes another. */
  async keepFresh(): Promise<void> {
    if (this.#fresh === undefined || (await addSetting(this.#db, SETTINGS.operator, this.#hashes.operator))) return;
    // Another node was first, and shows its own.
    this.#fresh = undefined;
    await this.#reload('operator');
  }

  /** As whom a token lets one act; takes as long for each that is wrong. */
  roleOf(token: string): Role | undefined {
    const hash = sha256(token);
    const isOperator = timingSafeEqual(hash, Buffer.from(this.#hashes.operator, 'hex'));
    const isReader = timingSafeEqual(hash, Buffer.from(this.#hashes.reader, 'hex'));
    return isOperator ? 'operator' : isReader ? 'reader' : undefined;
  }

  /** Another one for each token of a role. */
  markOf(role: Role): string {
    return this.#hashes[role].slice(0, MARK_DIGITS);
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
    // Of no token, and another one each time: what was opened before the last one must not count again.
    await this.#set('reader', randomBytes(32).toString('hex'));
  }

  async #set(role: Role, hash: string): Promise<void> {
    await savedSetting(this.#db, SETTINGS[role], hash);
    this.#become(role, hash);
    await this.#changes.everywhere([`settings:${SETTINGS[role]}`]);
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
