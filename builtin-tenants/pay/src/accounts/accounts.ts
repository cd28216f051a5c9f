/** Accounts, their credentials, and the people behind them. Credentials are shown once and stored as digests. */
import { ask, firstRow, known, type Question } from '../database/questions.ts';
import { dayOf } from '../day.ts';
import type { Database, Statement } from '../environment.ts';
import { newId, newSecret, sha256Hex } from './tokens.ts';
import type { Welcome } from './welcome.ts';

export interface Account {
  id: string;
  kind: 'human' | 'anonymous';
  humanId: string | null;
  createdAt: number;
}

export interface Credential {
  id: string;
  /** The first characters, to tell credentials apart. */
  hint: string;
  label: string;
  createdAt: number;
  lastUsedAt: number | null;
  /** Most that it may spend in a day (UTC), micro-USD; null: what the account has. */
  dailyCap: number | null;
  /** Of a credential with a cap, today. */
  spentToday: number;
}

/** An account, and the credential that opened it. */
export interface Opened extends Account {
  credentialId: string;
  usedAt: number | null;
  dailyCap: number | null;
}

/** An account that was opened by a credential. */
export type OpenedAccount = Account & Pick<Opened, 'credentialId' | 'dailyCap'>;

const CREDENTIAL = /^tpk_[A-Za-z0-9_-]{43}$/;
/** `lastUsedAt` is for people: exact to the minute is enough, and spares a write per call. */
const USE_NOTED_MS = 60_000;
const COLUMNS = 'id, kind, human_id AS humanId, created_at AS createdAt';

export class Accounts {
  readonly #db: Database;
  readonly #now: () => number;
  readonly #welcome: Welcome;

  constructor(db: Database, now: () => number, welcome: Welcome) {
    this.#db = db;
    this.#now = now;
    this.#welcome = welcome;
  }

  async find(id: string): Promise<Account | undefined> {
    return (
      (await this.#db.prepare(`SELECT ${COLUMNS} FROM accounts WHERE id = ?`).bind(id).first<Account>()) ?? undefined
    );
  }

  /** An account that nobody owns yet; whoever has its credential has it. */
  async registerAnonymous(label: string): Promise<{ account: string; credential: string }> {
    const id = newId('acc');
    await this.opening(id).run();
    return { account: id, credential: (await this.issueCredential(id, label)).credential };
  }

  /** Opens an anonymous account; to be part of a transaction. */
  opening(id: string): Statement {
    return this.#db
      .prepare("INSERT INTO accounts (id, kind, created_at) VALUES (?, 'anonymous', ?)")
      .bind(id, this.#now());
  }

  /** The person's main account, made if there is none, and given the welcome bonus that it is due. Idempotent. */
  async ofHuman(humanId: string): Promise<Account> {
    const find = () =>
      this.#db
        .prepare(`SELECT ${COLUMNS} FROM accounts WHERE human_id = ? AND kind = 'human' ORDER BY created_at LIMIT 1`)
        .bind(humanId)
        .first<Account>();
    // The id follows from the person's, so that two sign-ups at once cannot make two.
    const id = `acc_${(await sha256Hex(`account of ${humanId}`)).slice(0, 20)}`;
    await this.#db
      .prepare("INSERT INTO accounts (id, kind, human_id, created_at) VALUES (?, 'human', ?, ?) ON CONFLICT DO NOTHING")
      .bind(id, humanId, this.#now())
      .run();
    await this.#welcome.give(humanId, id);
    const account = await find();
    if (!account) throw new Error('the account was not made');
    return account;
  }

  /** All accounts of a person, the main one first. */
  async allOfHuman(humanId: string): Promise<Account[]> {
    const { results } = await this.#db
      .prepare(`SELECT ${COLUMNS} FROM accounts WHERE human_id = ? ORDER BY kind = 'human' DESC, created_at`)
      .bind(humanId)
      .all<Account>();
    return results;
  }

  /** Makes a person the owner of an anonymous account. Answers false when it has one already. */
  async claim(accountId: string, humanId: string): Promise<boolean> {
    const { meta } = await this.#db
      .prepare(
        "UPDATE accounts SET human_id = ?, claimed_at = ? WHERE id = ? AND kind = 'anonymous' AND human_id IS NULL",
      )
      .bind(humanId, this.#now(), accountId)
      .run();
    return meta.changes === 1;
  }

  /** @param dailyCap micro-USD */
  async issueCredential(
    account: string,
    label: string,
    dailyCap: number | null = null,
  ): Promise<{ id: string; credential: string }> {
    const credential = newSecret('tpk');
    const id = newId('crd');
    await this.#db
      .prepare(
        'INSERT INTO credentials (id, account_id, hash, hint, label, created_at, daily_cap) VALUES (?, ?, ?, ?, ?, ?, ?)',
      )
      .bind(
        id,
        account,
        await sha256Hex(credential),
        credential.slice(0, 8),
        label.slice(0, 100),
        this.#now(),
        dailyCap,
      )
      .run();
    return { id, credential };
  }

  /** The account that a credential opens, or undefined: unknown, revoked, malformed. */
  async byCredential(credential: string): Promise<OpenedAccount | undefined> {
    const opened = await ask(this.#db, await this.openedBy(credential));
    return opened && this.noteUse(opened);
  }

  /** The same as a question, to be asked with others; `noteUse` is for where the credential was used indeed. */
  async openedBy(credential: string | undefined): Promise<Question<Opened | undefined>> {
    if (credential === undefined || !CREDENTIAL.test(credential)) return known(undefined);
    const statement = this.#db
      .prepare(
        `SELECT a.id, a.kind, a.human_id AS humanId, a.created_at AS createdAt, c.id AS credentialId, c.last_used_at AS usedAt,
           c.daily_cap AS dailyCap
         FROM credentials c JOIN accounts a ON a.id = c.account_id WHERE c.hash = ? AND c.revoked_at IS NULL`,
      )
      .bind(await sha256Hex(credential));
    return firstRow<Opened>(statement);
  }

  async noteUse({ usedAt, ...account }: Opened): Promise<OpenedAccount> {
    const { credentialId } = account;
    const now = this.#now();
    if (usedAt === null || Math.abs(now - usedAt) > USE_NOTED_MS) {
      await this.#db.prepare('UPDATE credentials SET last_used_at = ? WHERE id = ?').bind(now, credentialId).run();
    }
    return account;
  }

  async credentials(account: string): Promise<Credential[]> {
    const { results } = await this.#db
      .prepare(
        `SELECT id, hint, label, created_at AS createdAt, last_used_at AS lastUsedAt, daily_cap AS dailyCap,
           coalesce((SELECT amount FROM credential_spend WHERE credential = id AND day = ?), 0) AS spentToday
         FROM credentials WHERE account_id = ? AND revoked_at IS NULL ORDER BY created_at`,
      )
      .bind(dayOf(this.#now()), account)
      .all<Credential>();
    return results;
  }

  /** From now on; what was spent today without a cap does not count. Answers false when the account has no such credential. */
  async cap(account: string, credentialId: string, dailyCap: number | null): Promise<boolean> {
    const { meta } = await this.#db
      .prepare('UPDATE credentials SET daily_cap = ? WHERE id = ? AND account_id = ? AND revoked_at IS NULL')
      .bind(dailyCap, credentialId, account)
      .run();
    return meta.changes === 1;
  }

  /** Answers false when the account has no such credential. */
  async revoke(account: string, credentialId: string): Promise<boolean> {
    const { meta } = await this.#db
      .prepare('UPDATE credentials SET revoked_at = ? WHERE id = ? AND account_id = ? AND revoked_at IS NULL')
      .bind(this.#now(), credentialId, account)
      .run();
    return meta.changes === 1;
  }
}
