/**
 * Sessions of the operator's console, and the one-time codes that start them. Both are passes, so they hold at every node
 * and after a restart, as long as the token of their role is the one that they were given under.
 */
import { createHash, randomBytes, timingSafeEqual } from 'node:crypto';
import type { Passes } from '../../payments/passes.ts';
import type { Changes } from '../../registry/changes.ts';
import type { OperatorTokens, Role } from './tokens.ts';

interface Given {
  readonly role: Role;
  /** Which token of the role was in force. */
  readonly token: string;
}

export interface Session extends Given {
  /** Also a word in each form: another page of the same site cannot know it. */
  readonly id: string;
  readonly endsAt: number;
  /** Over https: its cookie has another name then, and does not count over http. */
  readonly isSecure: boolean;
  /** Told on the next page, once. */
  flash?: { level: 'good' | 'bad'; text: string };
}

/** Path of the console on the operator's port. */
export const BASE = '/console';
const IDLE_MS = 30 * 60_000;
const LONGEST_MS = 12 * 3_600_000;
const CODE_MS = 10 * 60_000;
const CODE = 'once_';

interface Followed {
  session: Session;
  ended: AbortController;
  timer: NodeJS.Timeout;
}

export interface SessionsParts {
  passes<Claims extends object>(purpose: string): Passes<Claims>;
  tokens: Pick<OperatorTokens, 'markOf' | 'onChange'>;
  changes: Changes;
}

export class Sessions {
  readonly #parts: SessionsParts;
  readonly #sessions: Passes<Session>;
  readonly #codes: Passes<Given>;
  /** What goes on for long in a session, by its id. */
  readonly #followed = new Map<string, Followed>();

  constructor(parts: SessionsParts) {
    this.#parts = parts;
    this.#sessions = parts.passes('operator-session');
    this.#codes = parts.passes('operator-code');
    parts.tokens.onChange(() => {
      for (const { session } of this.#followed.values()) if (!this.#isInForce(session)) this.#stop(session);
    });
    parts.changes.on('log-outs', () => Promise.all([...this.#followed.values()].map((each) => this.#look(each))));
  }

  /** @returns the cookie */
  open(role: Role, isSecure: boolean): string {
    const endsAt = this.#sessions.now() + LONGEST_MS;
    return this.renewed({ ...this.#given(role), isSecure, id: newId(), endsAt });
  }

  /** @returns the cookie of a session that was used just now */
  renewed(session: Session): string {
    return this.#sessions.issue(session, IDLE_MS).token;
  }

  async find(cookie: string, isSecure: boolean): Promise<Session | undefined> {
    const session = await this.#sessions.read(cookie);
    return session?.isSecure === isSecure && this.#isInForce(session) ? session : undefined;
  }

  /** Aborts when a session ends, at whichever node. */
  async ended(session: Session): Promise<AbortSignal> {
    const followed = this.#followed.get(session.id) ?? this.#follow(session);
    // It may have ended since it was found.
    await this.#look(followed);
    return followed.ended.signal;
  }

  async end(cookie: string): Promise<void> {
    const session = await this.#sessions.end(cookie);
    if (session) this.#stop(session);
  }

  /** @returns a code that logs in once, and until when */
  code(role: Role, lifeMs = CODE_MS): { code: string; expiresAt: number } {
    const { token, expiresAt } = this.#codes.issue({ ...this.#given(role), id: newId() }, lifeMs);
    return { code: CODE + token, expiresAt };
  }

  async useCode(code: string): Promise<Role | undefined> {
    if (!code.startsWith(CODE)) return undefined;
    const given = await this.#codes.end(code.slice(CODE.length));
    return given && this.#isInForce(given) ? given.role : undefined;
  }

  #given(role: Role): Given {
    return { role, token: this.#parts.tokens.markOf(role) };
  }

  #isInForce({ role, token }: Given): boolean {
    return token === this.#parts.tokens.markOf(role);
  }

  #follow(session: Session): Followed {
    const timer = setTimeout(() => this.#stop(session), session.endsAt - this.#sessions.now()).unref();
    const followed = { session, ended: new AbortController(), timer };
    this.#followed.set(session.id, followed);
    return followed;
  }

  async #look({ session }: Followed): Promise<void> {
    if (!this.#isInForce(session) || (await this.#sessions.isEnded(session.id))) this.#stop(session);
  }

  #stop({ id }: Session): void {
    const followed = this.#followed.get(id);
    if (!followed) return;
    this.#followed.delete(id);
    clearTimeout(followed.timer);
    followed.ended.abort();
  }
}

function newId(): string {
  return randomBytes(24).toString('base64url');
}

export function isSameText(a: string, b: string): boolean {
  return timingSafeEqual(createHash('sha256').update(a).digest(), createHash('sha256').update(b).digest());
}
