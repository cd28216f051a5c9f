/** Everything the platform is made of, put together from its bindings. It serves many requests at once and keeps nothing of any. */
import { readPlaces } from '../../kit/look/tenant.ts';
import { Accounts } from './accounts/accounts.ts';
import { Agents } from './accounts/agents.ts';
import { Confirmation } from './accounts/confirmation.ts';
import { DeviceFlow } from './accounts/device-flow.ts';
import { Humans } from './accounts/humans.ts';
import { Mail } from './accounts/mail.ts';
import { PasswordReset } from './accounts/password-reset.ts';
import { Welcome, welcomeTerms } from './accounts/welcome.ts';
import { Catalog, CREDIT } from './catalog.ts';
import { Disputes } from './credit/disputes.ts';
import { Ledger } from './credit/ledger.ts';
import { OriginEvents } from './credit/origin-events.ts';
import { Purchases } from './credit/purchases.ts';
import { Renewals } from './credit/renewals.ts';
import { businessNow, type Database, type Env, payUrl } from './environment.ts';
import { ABANDONED_MS, Calls } from './gateway/calls.ts';
import { CreditChallenges } from './gateway/credit-challenge.ts';
import { Gateway } from './gateway/gateway.ts';
import { origins } from './gateway/origin.ts';
import { CaptureFailed, Payments } from './gateway/payments.ts';
import { SigningKeys } from './gateway/signing-keys.ts';
import { Webhooks } from './notices/webhooks.ts';
import { AutoTopUp } from './topup/auto-topup.ts';

/** A hold that nobody settled for this long has lost its owner: longer than any origin may take. */
const HOLD_ABANDONED_MS = 5 * ABANDONED_MS;

export interface Platform {
  env: Env;
  db: Database;
  now(): number;
  accounts: Accounts;
  agents: Agents;
  calls: Calls;
  catalog: Catalog;
  device: DeviceFlow;
  disputes: Disputes;
  events: OriginEvents;
  gateway: Gateway;
  humans: Humans;
  keys: SigningKeys;
  ledger: Ledger;
  payments: Payments;
  purchases: Purchases;
  /** Of deployments of the host. */
  renewals: Renewals;
  welcome: Welcome;
  confirmation: Confirmation;
  passwordReset: PasswordReset;
  webhooks: Webhooks;
  /** Lets work go on though its caller has gone. */
  waitUntil(work: Promise<unknown>): void;
  /** Sends what is due to origins and to webhooks, after the answer. */
  deliverEvents(): void;
  topUps: AutoTopUp;
  /** Tops up an account that is low and has a mandate, after the answer. */
  topUp(account: string): void;
  /** Services have charged, or tried to. */
  charged(charges: readonly { account: string; amount: number; isCovered: boolean }[]): Promise<void>;
}

export function createPlatform(env: Env, waitUntil: (work: Promise<unknown>) => void): Platform {
  const db = env.DB;
  const now = () => businessNow(env);
  const ledger = new Ledger(db, now);
  const welcome = new Welcome(db, ledger, now, welcomeTerms(env));
  const accounts = new Accounts(db, now, welcome);
  const catalog = new Catalog(db, env);
  const keys = new SigningKeys(db, env.PAY_SECRET);
  const ways = { keys, origins: origins(env) };
  const payments = new Payments(env.PAYMENTS);
  const calls = new Calls(db);
  const events = new OriginEvents(db, catalog, ways);
  const humans = new Humans(db);
  const webhooks = new Webhooks(db, now);
  const device = new DeviceFlow(db, accounts);
  const mail = new Mail(env);
  const deliverEvents = () => {
    waitUntil(events.deliver((account) => ledger.available(account)));
    waitUntil(webhooks.deliver());
  };
  const purchases = new Purchases({ db, catalog, ledger, payments, events, now });
  const { service, plan } = CREDIT;
  const topUps = new AutoTopUp({
    db,
    accounts,
    catalog,
    ledger,
    payments,
    purchases,
    plan: { service, id: plan },
    resource: `${payUrl(env)}/${service}/plans/${plan}/purchase`,
    now,
  });
  const topUp = (account: string) =>
    waitUntil(topUps.run(account).then((told) => (told > 0 ? deliverEvents() : undefined)));
  const disputes = new Disputes(db, ledger, now);
  const renewals = new Renewals({
    db,
    ledger,
    disputes,
    events,
    now,
    short(account) {
      topUp(account);
      deliverEvents();
    },
  });
  const challenges = new CreditChallenges(env.PAY_SECRET, new URL(payUrl(env)).hostname);
  return {
    env,
    db,
    now,
    ledger,
    accounts,
    catalog,
    keys,
    payments,
    calls,
    events,
    welcome,
    confirmation: new Confirmation(db, mail),
    passwordReset: new PasswordReset(db, humans, mail, env.PAGES_URL, waitUntil),
    humans,
    device,
    agents: new Agents({
      db,
      accounts,
      device,
      secret: env.PAY_SECRET,
      issuer: payUrl(env),
      verificationUri: `${env.PAGES_URL}/device`,
    }),
    disputes,
    gateway: new Gateway({
      db,
      accounts,
      catalog,
      ledger,
      ...ways,
      payments,
      challenges,
      base: payUrl(env),
      pagesUrl: env.PAGES_URL,
      places: readPlaces(env.PLACES, { name: 'Turnpike', href: env.APP_URL }),
      calls,
      waitUntil,
      topUp,
    }),
    purchases,
    renewals,
    waitUntil,
    webhooks,
    deliverEvents,
    topUps,
    topUp,
    async charged(charges) {
      const refused = charges.filter(({ isCovered }) => !isCovered);
      for (const { account, amount } of refused) await webhooks.suspended(account, amount);
      if (refused.length > 0) deliverEvents();
      for (const account of new Set(charges.map(({ account }) => account))) topUp(account);
    },
  };
}

/** What the cron does: everything that a crash, an absent origin or the passing of time left to do. */
export async function sweep(platform: Platform): Promise<void> {
  const { calls, db, device, events, humans, keys, ledger, payments, purchases, webhooks } = platform;
  const tasks: [name: string, work: () => Promise<unknown>][] = [
    ['rotate keys', () => keys.rotate()],
    ['finish purchases', () => purchases.recover()],
    [
      'finish captures',
      async () =>
        forEach(await calls.unfinishedCaptures(), async ({ key, hold, amount }) => {
          try {
            await payments.capture(hold, amount);
            await calls.captured(key).run();
          } catch (error) {
            if (error instanceof CaptureFailed && error.final) await calls.forget({ keys: [key] });
            else throw error;
          }
        }),
    ],
    [
      'give abandoned payments back',
      async () =>
        forEach(await calls.abandonedPayments(), async ({ key, hold }) => {
          await payments.release(hold);
          await calls.forget({ keys: [key] });
        }),
    ],
    ['release abandoned holds', () => ledger.releaseAbandoned(HOLD_ABANDONED_MS)],
    ['expire grants', () => ledger.expireGrants()],
    ['tell origins', () => events.deliver((account) => ledger.available(account))],
    ['go on with top-ups', () => platform.topUps.recover()],
    ['top up', () => platform.topUps.run()],
    ['tell accounts', () => webhooks.deliver()],
    ['forget what accounts were told', () => webhooks.forgetOld()],
    ['remove old calls', () => calls.removeOld()],
    ['remove old codes', () => device.removeOld()],
    ['remove old registrations', () => platform.agents.removeOld()],
    ['remove old sessions', () => humans.removeOld()],
    [
      'remove old purchases',
      () =>
        db
          .prepare('DELETE FROM purchases WHERE state = ? AND created_at < ?')
          .bind('failed', Date.now() - 7 * 86_400_000)
          .run(),
    ],
  ];
  const failed: string[] = [];
  for (const [name, work] of tasks) {
    try {
      await work();
    } catch (error) {
      console.error(name, error);
      failed.push(name);
    }
  }
  // The run's outcome is in its history: a failure must not look like success.
  if (failed.length > 0) throw new Error(`failed: ${failed.join(', ')}`);
}

/** One after the other; one that fails keeps none of the others from its turn. @throws the first error, after all */
async function forEach<T>(items: readonly T[], work: (item: T) => Promise<unknown>): Promise<void> {
  const errors: unknown[] = [];
  for (const item of items) await work(item).catch((error) => errors.push(error));
  if (errors.length > 0) throw errors[0];
}
