/**
 * Sessions of the operator's console, and the one-time codes that start them. They are in memory only: a restart of the
 * host ends all of them. Ids and codes are kept as hashes.
 */
import { createHash, randomBytes, timingSafeEqual } from 'node:crypto';
import type { Role } from './tokens.ts';

export interface Session {
  readonly role: Role;
  /** Of forms: another page of the same site cannot know it. */
  readonly csrf: string;
  /** Over https: its cookie has another name then, and does not count over http. */
  readonly isSecure: boolean;
  /** Told on the next page, once. */
  flash?: { level: 'good' | 'bad'; text: string };
}

/** Path of the console on the operator's port. */
export const BASE = '/console';
const IDLE_MS = 30 * 60_000;
const LONGEST_MS = 12 * 3_600_000;
/** The one that was idle for longest gives its place to a new one. */
const MOST_SESSIONS = 32;
const CODE_MS = 10 * 60_000;
const MOST_CODES = 16;
/** Failed log-ins: as many at once, then one in so many ms. */
const BURST = 10;
const REFILL_MS = 6_000;

interface Kept {
  session: Session;
  usedAt: number;
  endsAt: number;
  ended: AbortController;
}

export class Sessions {
  readonly #now: () => number;
  readonly #sessions = new Map<string, Kept>();
  readonly #codes = new Map<string, { role: Role; endsAt: number }>();
  #failures = 0;
  #countedAt = 0;

  /** @param now ms that only grow; tests pass their own */
  constructor(now: () => number = () => performance.now()) {
    this.#now = now;
  }

  /** @returns the id, for the cookie */
  open(role: Role, isSecure: boolean): string {
    const now = this.#now();
    for (const [key, kept] of this.#sessions) if (isOver(kept, now)) this.#end(key);
    while (this.#sessions.size >= MOST_SESSIONS) {
      const [oldest] = [...this.#sessions].sort(([, a], [, b]) => a.usedAt - b.usedAt);
      if (oldest) this.#end(oldest[0]);
    }
    const id = randomBytes(24).toString('base64url');
    const session = { role, isSecure, csrf: randomBytes(24).toString('base64url') };
    this.#sessions.set(hashOf(id), { session, usedAt: now, endsAt: now + LONGEST_MS, ended: new AbortController() });
    return id;
  }

  /** @param ended aborts when the session ends, for what goes on for long */
  find(id: string, isSecure: boolean): { session: Session; ended: AbortSignal } | undefined {
    const key = hashOf(id);
    const kept = this.#sessions.get(key);
    if (!kept || kept.session.isSecure !== isSecure) return undefined;
    const now = this.#now();
    if (isOver(kept, now)) {
      this.#end(key);
      return undefined;
    }
    kept.usedAt = now;
    return { session: kept.session, ended: kept.ended.signal };
  }

  end(id: string): void {
    this.#end(hashOf(id));
  }

  /** Its token was replaced: sessions and codes of the role are worth nothing. */
  endAll(role: Role): void {
    for (const [key, { session }] of this.#sessions) if (session.role === role) this.#end(key);
    for (const [key, code] of this.#codes) if (code.role === role) this.#codes.delete(key);
  }

  /** @returns a code that logs in once, and until when; ms of the system's clock */
  code(role: Role, lifeMs = CODE_MS): { code: string; expiresAt: number } {
    const [oldest] = this.#codes.keys();
    if (this.#codes.size >= MOST_CODES && oldest !== undefined) this.#codes.delete(oldest);
    const code = `once_${randomBytes(24).toString('base64url')}`;
    this.#codes.set(hashOf(code), { role, endsAt: this.#now() + lifeMs });
    return { code, expiresAt: Date.now() + lifeMs };
  }

  useCode(code: string): Role | undefined {
    const key = hashOf(code);
    const found = this.#codes.get(key);
    this.#codes.delete(key);
    return found && found.endsAt > this.#now() ? found.role : undefined;
  }

  /** Whether so many log-ins failed that another may not be tried now. @returns seconds to wait, or 0 */
  waitSeconds(): number {
    this.#recover();
    const over = this.#failures - (BURST - 1);
    return over <= 0 ? 0 : Math.ceil((REFILL_MS * over) / 1000);
  }

  failed(): void {
    this.#recover();
    this.#failures += 1;
  }

  #recover(): void {
    const now = this.#now();
    this.#failures = Math.max(0, this.#failures - (now - this.#countedAt) / REFILL_MS);
    this.#countedAt = now;
  }

  #end(key: string): void {
    this.#sessions.get(key)?.ended.abort();
    this.#sessions.delete(key);
  }
}

export function isSameText(a: string, b: string): boolean {
  return timingSafeEqual(createHash('sha256').update(a).digest(), createHash('sha256').update(b).digest());
}

function isOver({ usedAt, endsAt }: Kept, now: number): boolean {
  return now - usedAt >= IDLE_MS || now >= endsAt;
}

function hashOf(text: string): string {
  return createHash('sha256').update(text).digest('hex');
}
