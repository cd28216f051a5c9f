/** How PostgreSQL is logged in to: SCRAM-SHA-256 (RFC 5802, RFC 7677) with the server's proof, MD5, or the password itself. */
import { createHash, createHmac, pbkdf2, randomBytes, timingSafeEqual } from 'node:crypto';
import { promisify } from 'node:util';
import { int32, text } from './wire.ts';

const derive = promisify(pbkdf2);

/** PostgreSQL's own default is 4096; each costs this process time. */
const MOST_ITERATIONS = 100_000;

/** Answers what a server asks for, until it is content. */
export class LogIn {
  readonly #user: string;
  readonly #password: string;
  done = false;
  #nonce = '';
  #firstBare = '';
  #signature: Buffer | undefined;
  /** SCRAM proves both sides: without the proof of the server nothing that it says afterwards counts. */
  #owesProof = false;

  constructor(user: string, password: string) {
    this.#user = user;
    this.#password = password;
  }

  /** @returns what to send, nothing, or what is wrong */
  async answer(body: Buffer): Promise<Buffer | string | undefined> {
    const kind = body.length >= 4 ? body.readUInt32BE(0) : -1;
    const rest = body.subarray(4);
    if (kind === 0) {
      if (this.#owesProof) return 'the database does not prove that it knows the password';
      this.done = true;
      return undefined;
    }
    if (kind === 3) return text(`${this.#password}\0`);
    if (kind === 5 && rest.length === 4) return text(`md5${md5(md5(this.#password + this.#user), rest)}\0`);
    if (kind === 10) return this.#first(rest.toString('latin1').split('\0'));
    if (kind === 11) return this.#final(rest.toString('latin1'));
    if (kind === 12) return this.#check(rest.toString('latin1'));
    return 'the database asks for a way to log in that this host does not have; use scram-sha-256';
  }

  #first(mechanisms: string[]): Buffer | string {
    if (!mechanisms.includes('SCRAM-SHA-256') || this.#nonce !== '')
      return 'the database asks for a way to log in that this host does not have; use scram-sha-256';
    this.#owesProof = true;
    this.#nonce = randomBytes(18).toString('base64');
    this.#firstBare = `n=,r=${this.#nonce}`;
    const first = Buffer.from(`n,,${this.#firstBare}`);
    return Buffer.concat([text('SCRAM-SHA-256\0'), int32(first.length), first]);
  }

  async #final(challenge: string): Promise<Buffer | string> {
    const [, nonce = '', salt = '', rounds = ''] = /^r=([^,]+),s=([^,]+),i=(\d{1,9})(?:,|$)/.exec(challenge) ?? [];
    const iterations = Number(rounds);
    if (this.#nonce === '' || nonce === this.#nonce || !nonce.startsWith(this.#nonce) || iterations < 1)
      return 'the database breaks the rules of SCRAM';
    if (iterations > MOST_ITERATIONS)
      return `the database asks for more than ${MOST_ITERATIONS} iterations of SCRAM; store the password with fewer`;
    const password = this.#password.normalize('NFKC');
    const salted = await derive(password, Buffer.from(salt, 'base64'), iterations, 32, 'sha256');
    const clientKey = hmac(salted, 'Client Key');
    const withoutProof = `c=biws,r=${nonce}`;
    const signed = `${this.#firstBare},${challenge},${withoutProof}`;
    const proof = xor(clientKey, hmac(createHash('sha256').update(clientKey).digest(), signed));
    this.#signature = hmac(hmac(salted, 'Server Key'), signed);
    return text(`${withoutProof},p=${proof.toString('base64')}`);
  }

  #check(verdict: string): string | undefined {
    const given = Buffer.from(/^v=([^,]+)/.exec(verdict)?.[1] ?? '', 'base64');
    const expected = this.#signature;
    if (!expected || given.length !== expected.length || !timingSafeEqual(given, expected))
      return 'the database does not prove that it knows the password';
    this.#owesProof = false;
    return undefined;
  }
}

function md5(...parts: (string | Buffer)[]): string {
  const hash = createHash('md5');
  for (const part of parts) hash.update(part);
  return hash.digest('hex');
}

function hmac(key: Buffer, words: string): Buffer {
  return createHmac('sha256', key).update(words).digest();
}

function xor(a: Buffer, b: Buffer): Buffer {
  return Buffer.from(a.map((byte, index) => byte ^ (b[index] ?? 0)));
}
