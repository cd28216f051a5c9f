/** Log-ins to the operator's console without a browser: sessions and their ends, links, and how often may be guessed. */
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { Sessions } from '../../host/control/console/sessions.ts';
import { OperatorTokens } from '../../host/control/console/tokens.ts';
import { Passes } from '../../host/payments/passes.ts';
import { Guesses } from '../../host/registry/guesses.ts';
import { type OpenClaims, openClaims } from '../registry/support/claims.ts';

const MINUTE = 60_000;
const NOW = Date.parse('2026-11-01T00:00:00Z');

let claims: OpenClaims;
let clock: number;
let tokens: OperatorTokens;

beforeAll(async () => {
  claims = await openClaims();
});
afterAll(() => claims.close());
beforeEach(async () => {
  clock = NOW;
  tokens = await OperatorTokens.open(claims.registry);
  await tokens.keepFresh();
});

/** As a start makes them: one after another, or one at each node. */
function start(): Sessions {
  const passes = <Claims extends object>(purpose: string) =>
    new Passes<Claims>({ purpose, key: Buffer.alloc(32, purpose), keys: claims.keys, now: () => clock });
  return new Sessions({ passes, tokens, changes: claims.registry.changes });
}

describe('sessions', () => {
  it('hold at another node, or after a restart, and so does their end', async () => {
    const [a, b] = [start(), start()];
    const cookie = a.open('operator', false);
    const found = await b.find(cookie, false);
    expect(found?.role).toBe('operator');
    const renewed = found && b.renewed(found);
    await b.end(cookie);
    for (const each of [cookie, renewed ?? '']) {
      expect(await a.find(each, false)).toBeUndefined();
      expect(await start().find(each, false)).toBeUndefined();
    }
    expect(await a.find(a.open('operator', false), false)).toBeDefined();
  });

  it('end when nobody uses them for half an hour, and after twelve hours in any case', async () => {
    const sessions = start();
    let cookie = sessions.open('operator', false);
    const idle = cookie;
    for (let minute = 0; minute < 12 * 60; minute += 20) {
      clock = NOW + minute * MINUTE;
      const session = await sessions.find(cookie, false);
      expect([minute, session?.role]).toEqual([minute, 'operator']);
      if (session) cookie = sessions.renewed(session);
    }
    expect(await sessions.find(idle, false)).toBeUndefined();
    clock = NOW + 12 * 60 * MINUTE;
    expect(await sessions.find(cookie, false)).toBeUndefined();
  });

  it('count only by the cookie that they were opened with, and as nothing else', async () => {
    const sessions = start();
    const cookie = sessions.open('reader', true);
    expect(await sessions.find(cookie, false)).toBeUndefined();
    expect((await sessions.find(cookie, true))?.role).toBe('reader');
    const [body = '', signature = ''] = cookie.split('.');
    const more = Buffer.from(Buffer.from(body, 'base64url').toString().replace('reader', 'operator'));
    for (const forged of [
      `${more.toString('base64url')}.${signature}`,
      `${cookie}x`,
      body,
      '',
      sessions.code('operator').code.slice(5),
    ])
      expect(await sessions.find(forged, true)).toBeUndefined();
    expect(await sessions.useCode(`once_${cookie}`)).toBeUndefined();
  });

  it('end with the token of their role, and what goes on in them, too', async () => {
    const sessions = start();
    const [operator, reader] = [sessions.open('operator', false), sessions.open('reader', false)];
    const session = await sessions.find(operator, false);
    const ended = session && (await sessions.ended(session));
    const { code } = sessions.code('operator');
    expect(ended?.aborted).toBe(false);
    await tokens.replace('operator');
    expect(ended?.aborted).toBe(true);
    expect(await sessions.find(operator, false)).toBeUndefined();
    expect(await sessions.find(reader, false)).toBeDefined();
    expect(await sessions.useCode(code)).toBeUndefined();
    // What was ended once does not count again when there is no token, as before.
    await tokens.replace('reader');
    await tokens.takeBackReader();
    expect(await sessions.find(reader, false)).toBeUndefined();
  });

  it('outlast no clock: one that is behind ends them sooner at the others, one that is ahead after twelve hours', async () => {
    const sessions = start();
    clock = NOW - 40 * MINUTE;
    const behind = sessions.open('operator', false);
    clock = NOW + 60 * MINUTE;
    const ahead = sessions.open('operator', false);
    clock = NOW;
    expect(await sessions.find(behind, false)).toBeUndefined();
    const session = await sessions.find(ahead, false);
    expect(session).toBeDefined();
    clock = NOW + 13 * 60 * MINUTE;
    expect(session && (await sessions.find(sessions.renewed(session), false))).toBeUndefined();
  });

  it('leave nothing in the registry that logs in', async () => {
    const sessions = start();
    const [cookie, open] = [sessions.open('operator', false), sessions.open('reader', true)];
    const { code } = sessions.code('operator');
    await sessions.useCode(code);
    await sessions.end(cookie);
    const tables = ['payment_claims', 'settings'];
    const kept = await Promise.all(tables.map((table) => claims.registry.client.execute(`SELECT * FROM ${table}`)));
    const texts = kept.flatMap(({ rows }) => rows.flatMap((row) => Object.values(row).map(String)));
    const session = await sessions.find(open, true);
    const secrets = [cookie, open, code].flatMap((one) => [one, one.split('.')[1] ?? one]).concat(session?.id ?? '');
    expect(texts.filter((text) => secrets.some((one) => text.includes(one)))).toEqual([]);
    // A key of their own, which is not in the registry, makes them.
    const other = new Passes({
      purpose: 'operator-session',
      key: Buffer.alloc(32),
      keys: claims.keys,
      now: () => clock,
    });
    const made = {
      role: 'operator',
      token: tokens.markOf('operator'),
      isSecure: false,
      id: 'x',
      endsAt: clock + MINUTE,
    };
    expect(await sessions.find(other.issue(made, MINUTE).token, false)).toBeUndefined();
  });

  it('end what goes on in them by a log-out, also one that was before', async () => {
    const sessions = start();
    const [one, other] = [sessions.open('operator', false), sessions.open('operator', false)];
    const session = await sessions.find(one, false);
    const another = await sessions.find(other, false);
    if (!session || !another) throw new Error('they were opened just now');
    const signals = [await sessions.ended(session), await sessions.ended(another), await sessions.ended(session)];
    await sessions.end(one);
    expect(signals.map(({ aborted }) => aborted)).toEqual([true, false, true]);
    expect((await sessions.ended(session)).aborted).toBe(true);
  });
});

describe('codes of links', () => {
  it('work once, for ten minutes, at whichever node they are used', async () => {
    const [a, b] = [start(), start()];
    const { code } = a.code('reader');
    const used = await Promise.all([a, b, a, b].map((each) => each.useCode(code)));
    expect(used.filter((role) => role === 'reader')).toHaveLength(1);
    expect(await b.useCode(code)).toBeUndefined();
    const late = a.code('operator').code;
    clock += 10 * MINUTE;
    expect(await b.useCode(late)).toBeUndefined();
  });
});

describe('guesses', () => {
  const later = (ms: number) =>
    claims.registry.client.execute({
      sql: `UPDATE settings SET value = CAST(CAST(value AS BIGINT) - ? AS TEXT) WHERE name = 'guesses'`,
      args: [ms],
    });

  it('are ten, then one in six seconds, at all nodes together', async () => {
    const [a, b] = [new Guesses(claims.registry, 'guesses'), new Guesses(claims.registry, 'guesses')];
    const waits = await Promise.all(Array.from({ length: 20 }, (_, at) => (at % 2 ? a : b).failed()));
    expect(waits.filter((wait) => wait === 0)).toHaveLength(10);
    expect(await a.failed()).toBeGreaterThan(0);
    expect(await a.failed()).toBeLessThanOrEqual(6);
    await later(6_000);
    expect([await b.failed(), (await a.failed()) > 0]).toEqual([0, true]);
    // The database's clock was an hour ahead.
    await later(-3_600_000);
    expect([await b.failed(), (await a.failed()) > 0]).toEqual([0, true]);
    await later(61_000);
    for (let guess = 0; guess < 10; guess++) expect(await a.failed()).toBe(0);
    expect(await b.failed()).toBeGreaterThan(0);
  });
});
