/**
 * What the host itself gives to built-in tenants as secrets: its addresses, the keys with which they trust each other,
 * and business time. Keys are made once and stay with the deployment; only the registry holds them, sealed.
 */
import { randomBytes } from 'node:crypto';
import type { Deployment } from '../registry/schema/deployments.ts';
import type { Config } from '../shared/config.ts';
import { micro } from '../shared/money.ts';
import type { ControlDeps } from './deps.ts';
import { bringIntoService } from './versions.ts';

type SecretDeps = Pick<
  ControlDeps,
  'config' | 'publicUrl' | 'deployments' | 'secrets' | 'clock' | 'payments' | 'demoWalletKey'
>;

/** Where the pay platform finds the host's mailer: the name follows from that of its socket, mailer.sock. */
const MAILER_URL = 'http://mailer.internal';

/** Built-in tenants that keep books by business time. */
const KEEP_TIME = ['pay', 'deals'];

/** @param name folder of the built-in tenant, which is also its slug */
export async function builtinSecrets(deps: SecretDeps, name: string): Promise<Record<string, string>> {
  const { publicUrl, config } = deps;
  const own = await known(deps, name);
  const keep = (key: string) => own[key] ?? randomBytes(32).toString('base64url');
  const time = KEEP_TIME.includes(name) ? clockSecret(deps.clock.offsetMs) : {};
  switch (name) {
    case 'pay':
      return {
        APP_URL: publicUrl,
        PAGES_URL: subdomain(publicUrl, 'pay', config.baseDomain),
        PAY_SECRET: keep('PAY_SECRET'),
        PAY_SERVICE_KEY: keep('PAY_SERVICE_KEY'),
        PAY_OPERATOR_KEY: keep('PAY_OPERATOR_KEY'),
        ...welcomeSecrets(config),
        ...time,
      };
    case 'deals':
      return {
        APP_URL: publicUrl,
        PAY_SERVICE_KEY: (await known(deps, 'pay')).PAY_SERVICE_KEY ?? keep('PAY_SERVICE_KEY'),
        DEALS_SECRET: keep('DEALS_SECRET'),
        ...time,
      };
    case 'speech':
      return {
        APP_URL: publicUrl,
        PAY_TO: deps.payments.status().recipient ?? '',
        PAY_NETWORK: config.payments.network,
        PAY_OFFERS: JSON.stringify(speechOffers(deps)),
        ...(deps.demoWalletKey === undefined ? {} : { DEMO_WALLET_KEY: deps.demoWalletKey }),
      };
    default:
      return { APP_URL: publicUrl };
  }
}

/** Off the local network the welcome bonus is real money: it has an end and a limit, and needs a confirmed address. */
function welcomeSecrets({ payments, mail }: Config): Record<string, string> {
  if (payments.network === 'local') return { PAY_NETWORK: 'local' };
  return {
    PAY_NETWORK: payments.network,
    WELCOME_DAYS: String(payments.welcome.days),
    WELCOME_TOTAL_USD: payments.welcome.total || '0',
    ...(mail.smtpUrl === '' ? {} : { MAILER_URL }),
  };
}

/** The ways to pay, as the tenant's own descriptions name them; amounts are the tenant's. */
function speechOffers({ payments }: SecretDeps): { intent: string; method: string; currency: string; mode: string }[] {
  return (['fixed', 'metered'] as const).flatMap((mode) =>
    payments.offers(micro(1n), { mode }).map(({ intent, method, currency }) => ({ intent, method, currency, mode })),
  );
}

/** Tells built-in tenants that business time was moved: their instances are replaced, without a failed request. */
export async function moveBuiltinClocks(deps: ControlDeps): Promise<void> {
  for (const name of KEEP_TIME) await deps.builtinTurns.run(() => moveBuiltinClock(deps, name));
}

async function moveBuiltinClock(deps: ControlDeps, name: string): Promise<void> {
  const present = await deps.deployments.bySlug(name);
  if (!present?.builtin || present.state === 'decommissioned') return;
  await deps.updates.run(present.tenant, () => moveClockOf(deps, present));
}

async function moveClockOf(deps: ControlDeps, present: Deployment): Promise<void> {
  const { CLOCK_OFFSET_MS: _before, ...secrets } = await deps.secrets.reveal(present.tenant);
  await bringIntoService(deps, present, {
    secrets: deps.secrets.seal(present.tenant, { ...secrets, ...clockSecret(deps.clock.offsetMs) }),
  });
}

function clockSecret(offsetMs: number): Record<string, string> {
  return offsetMs === 0 ? {} : { CLOCK_OFFSET_MS: String(offsetMs) };
}

async function known({ deployments, secrets }: SecretDeps, slug: string): Promise<Record<string, string>> {
  const present = await deployments.bySlug(slug);
  return present?.builtin && present.state !== 'decommissioned' ? secrets.reveal(present.tenant) : {};
}

/** `http://localhost:8402` and `localhost` -> `http://pay.localhost:8402`. */
function subdomain(publicUrl: string, name: string, baseDomain: string): string {
  const { protocol, port } = new URL(publicUrl);
  return `${protocol}//${name}.${baseDomain.replace(/^\./, '')}${port === '' ? '' : `:${port}`}`;
}
