/** Who counts as one person and as one caller. */
import { beforeEach, describe, expect, test } from 'vitest';
import { migrate } from '../../builtin-tenants/kit/migrate.ts';
import { canonicalEmail } from '../../builtin-tenants/pay/src/accounts/email.ts';
import { Humans } from '../../builtin-tenants/pay/src/accounts/humans.ts';
import { MIGRATIONS } from '../../builtin-tenants/pay/src/database/migrations.ts';
import { limitCaller, networkOf } from '../../builtin-tenants/pay/src/rate-limit.ts';
import { type MemoryDatabase, memoryDatabase } from '../deals/support/memory-database.ts';

const PASSWORD = 'correct horse battery';
const limited = expect.objectContaining({ code: 'rate_limited' });
const unauthorized = expect.objectContaining({ code: 'unauthorized' });

describe('an e-mail address', () => {
  test.each([
    ['Ann.Lee+x@Example.COM ', 'ann.lee+x@example.com'],
    ['ann@ex\u00adam\u200bple.com', 'ann@example.com'],
    ['ann@ｅxample.com', 'ann@example.com'],
    ['ann@bücher.example', 'ann@xn--bcher-kva.example'],
    // A domain in another script is another domain, and is shown as such.
    ['ann@exаmple.com', 'ann@xn--exmple-4nf.com'],
  ])('%j is %s', (typed, email) => expect(canonicalEmail(typed)).toBe(email));

  test.each([
    ['zero width', 'an\u200bn@example.com'],
    ['soft hyphen', 'an\u00adn@example.com'],
    ['other script', 'аnn@example.com'],
    ['fullwidth', 'ａnn@example.com'],
    ['combining mark', 'a\u0301nn@example.com'],
    ['direction mark', '\u202eann@example.com'],
    ['two at signs', 'ann@b@example.com'],
    ['quoted', '"ann"@example.com'],
    ['comment', 'ann(x)@example.com'],
    ['dots', 'ann..lee@example.com'],
    ['port', 'ann@example.com:80'],
    ['path', 'ann@example.com/x'],
    ['user in the domain', 'ann@x:y@example.com'],
    ['address literal', 'ann@[192.0.2.1]'],
    ['number', 'ann@2130706433'],
    ['IPv4', 'ann@192.0.2.1'],
    ['one label', 'ann@localhost'],
    ['trailing dot', 'ann@example.com.'],
    ['empty', ''],
    ['long', `${'a'.repeat(65)}@example.com`],
  ])('with %s is refused', (_what, typed) => {
    expect(() => canonicalEmail(typed)).toThrow(expect.objectContaining({ code: 'invalid_field' }));
  });
});

describe('a caller', () => {
  test.each([
    ['192.0.2.7', { caller: '192.0.2.7' }],
    ['::ffff:192.0.2.7', { caller: '192.0.2.7' }],
    ['2001:db8:1:2:3:4:5:6', { caller: '2001:db8:1:2::/64', site: '2001:db8:1::/48' }],
    ['2001:0db8:0001:0002::', { caller: '2001:db8:1:2::/64', site: '2001:db8:1::/48' }],
    [undefined, { caller: 'unknown' }],
    ['nonsense', { caller: 'unknown' }],
  ])('at %s is counted by network', (address, networks) => expect(networkOf(address)).toEqual(networks));
});

describe('signing up and in', () => {
  let db: MemoryDatabase;
  let humans: Humans;
  const outcome = (work: Promise<unknown>) =>
    work.then(
      () => 'in',
      (error: { code: string }) => error.code,
    );

  beforeEach(async () => {
    db = memoryDatabase();
    await migrate(db, MIGRATIONS);
    humans = new Humans(db);
  });

  test('addresses of one /64 are one caller, and those of a /48 are eight', async () => {
    const tryFrom = (address: string) => outcome(limitCaller(db, 'sign-up', address, 5, 60_000));
    for (let n = 0; n < 5; n += 1) expect(await tryFrom(`2001:db8:1:2::${n}`)).toBe('in');
    expect(await tryFrom('2001:db8:1:2:ffff::1')).toBe('rate_limited');
    for (let n = 0; n < 35; n += 1) expect(await tryFrom(`2001:db8:1:${n + 3}::1`)).toBe('in');
    expect(await tryFrom('2001:db8:1:77::1')).toBe('rate_limited');
    expect(await tryFrom('2001:db8:2:77::1')).toBe('in');
  });

  test('strangers who guess do not lock a person out', async () => {
    await humans.signUp('ann@example.com', PASSWORD, '192.0.2.1');
    const guesses = Array.from({ length: 22 }, (_, n) => `198.51.100.${n % 2}`);
    const outcomes: string[] = [];
    for (const from of guesses) outcomes.push(await outcome(humans.signIn('ann@example.com', 'wrong horse', from)));
    expect(new Set(outcomes)).toEqual(new Set(['unauthorized']));
    expect(await outcome(humans.signIn('ann@example.com', PASSWORD, '192.0.2.1'))).toBe('in');
  });

  test('one caller has a bounded number of guesses, whoever they are about', async () => {
    for (let n = 0; n < 30; n += 1)
      await expect(humans.signIn(`p${n}@example.com`, 'wrong horse', '2001:db8::1')).rejects.toEqual(unauthorized);
    await expect(humans.signIn('other@example.com', 'wrong horse', '2001:db8::2')).rejects.toEqual(limited);
  });

  test('an account with an address from before keeps its person', async () => {
    const { id } = await humans.signUp('ann@example.com', PASSWORD, '192.0.2.1');
    db.sql("UPDATE humans SET email = 'änn@example.com'");
    expect(await humans.signIn(' ÄNN@example.com', PASSWORD, '192.0.2.1')).toMatchObject({ id });
  });
});
