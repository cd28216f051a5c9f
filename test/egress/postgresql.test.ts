import { createHash, createHmac, pbkdf2Sync } from 'node:crypto';
import { describe, expect, test } from 'vitest';
import { State } from '../../host/egress/database/postgresql.ts';
import { LogIn } from '../../host/egress/database/postgresql-login.ts';

const int32 = (value: number) => {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32BE(value);
  return bytes;
};
const asked = (kind: number, text: string | Buffer = '') => Buffer.concat([int32(kind), Buffer.from(text)]);
const message = (type: string, body: string | Buffer) => {
  const bytes = Buffer.from(body);
  return Buffer.concat([Buffer.from(type), int32(bytes.length + 4), bytes]);
};
const hmac = (key: Buffer, text: string) => createHmac('sha256', key).update(text).digest();

describe('the log-in', () => {
  const MECHANISMS = asked(10, 'SCRAM-SHA-256-PLUS\0SCRAM-SHA-256\0\0');

  /** What a server of PostgreSQL says, and what it expects. */
  async function challenge(login: LogIn, iterations = 4096) {
    const first = String(await login.answer(MECHANISMS)).slice('SCRAM-SHA-256\0'.length + 4);
    const bare = first.slice('n,,'.length);
    const nonce = /r=(.*)$/.exec(bare)?.[1];
    return { bare, nonce, text: `r=${nonce}server,s=${Buffer.from('salt').toString('base64')},i=${iterations}` };
  }

  test('by SCRAM proves both sides', async () => {
    const login = new LogIn('me', 'secret');
    const { bare, text } = await challenge(login);
    const final = String(await login.answer(asked(11, text)));
    const salted = pbkdf2Sync('secret', 'salt', 4096, 32, 'sha256');
    const signed = `${bare},${text},${final.slice(0, final.indexOf(',p='))}`;
    const stored = createHash('sha256').update(hmac(salted, 'Client Key')).digest();
    const proof = Buffer.from(final.slice(final.indexOf(',p=') + 3), 'base64');
    const key = proof.map((byte, index) => byte ^ (hmac(stored, signed)[index] ?? 0));
    expect(createHash('sha256').update(key).digest()).toEqual(stored);
    const signature = hmac(hmac(salted, 'Server Key'), signed).toString('base64');
    expect(await login.answer(asked(12, `v=${signature}`))).toBeUndefined();
    expect(login.done).toBe(false);
    await login.answer(asked(0));
    expect(login.done).toBe(true);
  });

  test('is not done where the server proves nothing', async () => {
    const login = new LogIn('me', 'secret');
    const { text } = await challenge(login);
    await login.answer(asked(11, text));
    expect(await login.answer(asked(0))).toMatch(/does not prove/);
    expect(await login.answer(asked(12, `v=${Buffer.alloc(32).toString('base64')}`))).toMatch(/does not prove/);
    expect(login.done).toBe(false);
  });

  test('takes no part in what a server makes up', async () => {
    const login = new LogIn('me', 'secret');
    const { nonce, text } = await challenge(login, 2_000_000_000);
    expect(await login.answer(asked(11, text.replace('2000000000', '200000000')))).toMatch(
      /more than 100000 iterations/,
    );
    expect(await login.answer(asked(11, `r=${nonce},s=AAAA,i=1`))).toMatch(/breaks the rules/);
    expect(await login.answer(asked(11, 'r=other,s=AAAA,i=4096'))).toMatch(/breaks the rules/);
    expect(await new LogIn('me', 'secret').answer(asked(12, 'v='))).toMatch(/does not prove/);
    expect(await new LogIn('me', 'secret').answer(asked(7))).toMatch(/scram-sha-256/);
    expect(await new LogIn('me', 'secret').answer(Buffer.alloc(2))).toMatch(/scram-sha-256/);
  });

  test('by MD5', async () => {
    // As `md5` || md5(md5('secret' || 'me') || salt) of PostgreSQL has it.
    const inner = createHash('md5').update('secretme').digest('hex');
    const outer = createHash('md5').update(`${inner}salt`).digest('hex');
    expect(String(await new LogIn('me', 'secret').answer(asked(5, 'salt')))).toBe(`md5${outer}\0`);
  });
});

describe('what a client leaves', () => {
  const READY = message('Z', 'I');
  const END = message('X', '');
  const all = (state: State, bytes: Buffer, size: number) => {
    let passed = 0;
    for (let at = 0; at < bytes.length; at += size) {
      const part = bytes.subarray(at, at + size);
      const taken = state.fromClient(part);
      passed += taken;
      if (taken < part.length) break;
    }
    return passed;
  };

  test.each([1, 3, 1_000])('is clean after queries that are answered, in pieces of %i bytes', (size) => {
    const state = new State();
    const extended = Buffer.concat([
      message('P', '\0SELECT 1\0\0\0'),
      message('B', 'XXXX'),
      message('E', ''),
      message('S', ''),
    ]);
    const sent = Buffer.concat([message('Q', 'SELECT 1\0'), extended]);
    expect(all(state, Buffer.concat([sent, END, Buffer.from('more')]), size)).toBe(sent.length);
    expect(state.isClean).toBe(false);
    const answer = Buffer.concat([message('D', 'Z'.repeat(70_000)), READY, message('C', ''), READY]);
    for (let at = 0; at < answer.length; at += size) state.fromServer(answer.subarray(at, at + size));
    expect(state.isClean).toBe(true);
    expect(state.inTransaction).toBe(false);
  });

  test.each<[string, Buffer, Buffer]>([
    ['a query without its answer', message('Q', 'SELECT 1\0'), Buffer.alloc(0)],
    ['half a message', message('Q', 'SELECT 1\0').subarray(0, 7), Buffer.alloc(0)],
    ['half a header', Buffer.from('Q\0'), Buffer.alloc(0)],
    ['a statement without a Sync', message('P', '\0SELECT 1\0\0\0'), Buffer.alloc(0)],
    ['half an answer', message('Q', 'SELECT 1\0'), Buffer.concat([READY, Buffer.from('D')])],
    ['an answer that nobody asked for', Buffer.alloc(0), READY],
    ['a message of a length that cannot be', Buffer.from([0x51, 0, 0, 0, 1]), Buffer.alloc(0)],
  ])('is not with %s', (_what, sent, answered) => {
    const state = new State();
    state.fromClient(sent);
    state.fromServer(answered);
    expect(state.isClean).toBe(false);
  });

  test.each(['T', 'E'])('in a transaction (%s) is rolled back', (status) => {
    const state = new State();
    state.fromClient(message('Q', 'BEGIN\0'));
    state.fromServer(message('Z', status));
    expect([state.isClean, state.inTransaction]).toEqual([true, true]);
  });
});
