/** The welcome bonus: for each person on the local network; elsewhere once for each confirmed mailbox, up to a total. */
import { beforeEach, describe, expect, test } from 'vitest';
import { migrate } from '../../builtin-tenants/kit/migrate.ts';
import { mailboxOf } from '../../builtin-tenants/pay/src/accounts/email.ts';
import { Humans } from '../../builtin-tenants/pay/src/accounts/humans.ts';
import { Welcome, welcomeTerms } from '../../builtin-tenants/pay/src/accounts/welcome.ts';
import { Ledger } from '../../builtin-tenants/pay/src/credit/ledger.ts';
import { MIGRATIONS } from '../../builtin-tenants/pay/src/database/migrations.ts';
import type { Env } from '../../builtin-tenants/pay/src/environment.ts';
import { type MemoryDatabase, memoryDatabase } from '../deals/support/memory-database.ts';

const NOW = 1_000_000;
const REAL = { PAY_NETWORK: 'tempo', MAILER_URL: 'http://mailer.internal', WELCOME_DAYS: '2', WELCOME_TOTAL_USD: '10' };

test.each([
  ['ann@example.com', 'ann@example.com'],
  ['ann+shop@example.com', 'ann@example.com'],
  ['+ann@example.com', '+ann@example.com'],
  ['a.n.n+x@googlemail.com', 'ann@gmail.com'],
])('%s is the mailbox %s', (email, mailbox) => expect(mailboxOf(email)).toBe(mailbox));

let db: MemoryDatabase;
beforeEach(async () => {
  db = memoryDatabase();
  await migrate(db, MIGRATIONS);
});

/** What a person has after signing up; and after the address was confirmed. */
async function person(email: string, env: Partial<Env>): Promise<{ signedUp: number; confirmed: number }> {
  const ledger = new Ledger(db, () => NOW);
  const welcome = new Welcome(db, ledger, () => NOW, welcomeTerms(env as Env));
  const { id } = await new Humans(db).signUp(email, 'correct horse battery', undefined);
  const account = `acc_${id}`;
  db.sql("INSERT INTO accounts (id, kind, human_id, created_at) VALUES (?, 'human', ?, 0)", account, id);
  await welcome.give(id, account);
  const signedUp = await ledger.available(account);
  db.sql('UPDATE humans SET confirmed_at = 1 WHERE id = ?', id);
  await Promise.all([welcome.give(id, account), welcome.give(id, account)]);
  return { signedUp, confirmed: await ledger.available(account) };
}

describe('the welcome bonus', () => {
  test('is everybody’s on the local network, without an end', async () => {
    expect(await person('ann@example.com', { PAY_NETWORK: 'local' })).toEqual({
      signedUp: 5_000_000,
      confirmed: 5_000_000,
    });
    expect(db.sql('SELECT expires_at FROM grants')).toEqual([{ expires_at: null }]);
  });

  test.each([
    ['without a mailer', { PAY_NETWORK: 'tempo' }],
    ['where the network is not told', {}],
    ['at 0', { ...REAL, WELCOME_BONUS_USD: '0' }],
    ['under a limit of 0', { ...REAL, WELCOME_TOTAL_USD: '0' }],
  ])('is nobody’s %s', async (_what, env) => {
    expect(await person('ann@example.com', env)).toEqual({ signedUp: 0, confirmed: 0 });
  });

  test('elsewhere needs a confirmed address, has an end, and is given once per mailbox up to the limit', async () => {
    expect(await person('ann@example.com', REAL)).toEqual({ signedUp: 0, confirmed: 5_000_000 });
    expect(db.sql('SELECT promotional, expires_at FROM grants')).toEqual([
      { promotional: 1, expires_at: NOW + 2 * 86_400_000 },
    ]);
    expect(await person('ann+2@example.com', REAL)).toEqual({ signedUp: 0, confirmed: 0 });
    expect(await person('bob@example.com', REAL)).toEqual({ signedUp: 0, confirmed: 5_000_000 });
    expect(await person('cem@example.com', REAL)).toEqual({ signedUp: 0, confirmed: 0 });
  });
});
