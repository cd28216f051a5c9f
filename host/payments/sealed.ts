/** What tenants and payers keep for this host, and bring back: readable, and of no use when it was changed. */
import { createHmac, timingSafeEqual } from 'node:crypto';

export class Sealed<Claims extends object> {
  readonly #key: Buffer;

  /** @param key of one purpose: what was sealed for another is nothing here */
  constructor(key: Buffer) {
    this.#key = key;
  }

  seal(claims: Claims): string {
    const body = Buffer.from(JSON.stringify(claims)).toString('base64url');
    return `${body}.${this.#mac(body).toString('base64url')}`;
  }

  /** @returns undefined for anything that was not sealed here */
  open(token: unknown): Claims | undefined {
    const match = typeof token === 'string' ? /^([\w-]{1,8192})\.([\w-]{43})$/.exec(token) : null;
    if (!match?.[1] || !match[2]) return undefined;
    if (!timingSafeEqual(Buffer.from(match[2], 'base64url'), this.#mac(match[1]))) return undefined;
    return JSON.parse(Buffer.from(match[1], 'base64url').toString('utf8'));
  }

  #mac(body: string): Buffer {
    return createHmac('sha256', this.#key).update(body).digest();
  }
}
