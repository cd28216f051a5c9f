/**
 * What the host itself gives to built-in tenants as secrets, as their manifests ask: its addresses, the keys with which
 * they trust each other, and business time. Keys are made once and stay with the deployment; only the registry holds
 * them, sealed.
 */
import { randomBytes } from 'node:crypto';
import type { Deployment } from '../registry/schema/deployments.ts';
import { micro } from '../shared/money.ts';
import type { Builtin, SOURCES } from './builtins.ts';
import type { ControlDeps } from './deps.ts';
import { placesOf } from './pages/places.ts';
import { bringIntoService } from './versions.ts';

type SecretDeps = Pick<
  ControlDeps,
  'config' | 'builtins' | 'publicUrl' | 'deployments' | 'secrets' | 'clock' | 'payments' | 'demoWalletKey'
>;
type Source = (typeof SOURCES)[number];

interface Asking extends SecretDeps {
  /** Slug of the tenant. */
  name: string;
  /** Value of this secret so far. */
  before: string | undefined;
}

const isLocal = ({ config }: SecretDeps) => config.payments.network === 'local';

/** The value of each source; undefined: the tenant does not get this secret. */
const VALUES: Record<Source, (asking: Asking) => string | undefined> = {
  generate: ({ before }) => before ?? randomBytes(32).toString('base64url'),
  appUrl: ({ publicUrl }) => publicUrl,
  pagesUrl: ({ publicUrl, name, config }) => subdomain(publicUrl, name, config.baseDomain),
  clockOffset: ({ clock }) => (clock.offsetMs === 0 ? undefined : String(clock.offsetMs)),
  network: ({ config }) => config.payments.network,
  recipient: ({ payments }) => payments.status().recipient ?? '',
  offers: ({ payments }) => JSON.stringify(waysToPay(payments)),
  places: (asking) => JSON.stringify(placesOf(asking, asking.publicUrl)),
  demoWallet: ({ demoWalletKey }) => demoWalletKey,
  mailerUrl: ({ config }) => (config.mail.smtpUrl === '' ? undefined : 'http://mailer.internal'),
  // Off the local network a welcome bonus is real money: it has an end and a limit, and needs a confirmed address.
  welcomeDays: (asking) => (isLocal(asking) ? undefined : String(asking.config.payments.welcome.days)),
  welcomeTotal: (asking) => (isLocal(asking) ? undefined : asking.config.payments.welcome.total || '0'),
};

export async function builtinSecrets(deps: SecretDeps, { name, asks }: Builtin): Promise<Record<string, string>> {
  const own = await known(deps, name);
  const given: Record<string, string> = {};
  for (const [secret, source] of Object.entries(asks.secrets)) {
    const [slug = '', shared] = source.split(':');
    const value =
      shared === undefined
        ? VALUES[source as Source]({ ...deps, name, before: own[secret] })
        : ((await known(deps, slug))[shared] ?? VALUES.generate({ ...deps, name, before: own[secret] }));
    if (value !== undefined) given[secret] = value;
  }
  return given;
}

/** The ways to pay, as a tenant's own descriptions name them; amounts are the tenant's. */
function waysToPay(
  payments: SecretDeps['payments'],
): { intent: string; method: string; currency: string; mode: string }[] {
  return (['fixed', 'metered'] as const).flatMap((mode) =>
    payments.offers(micro(1n), { mode }).map(({ intent, method, currency }) => ({ intent, method, currency, mode })),
  );
}

/** Tells built-in tenants that business time was moved: their instances are replaced, without a failed request. */
export async function moveBuiltinClocks(deps: ControlDeps): Promise<void> {
  for (const builtin of deps.builtins) {
    const secret = Object.entries(builtin.asks.secrets).find(([, source]) => source === 'clockOffset')?.[0];
    if (secret !== undefined) await deps.builtinTurns.run(() => moveBuiltinClock(deps, builtin.name, secret));
  }
}

async function moveBuiltinClock(deps: ControlDeps, name: string, secret: string): Promise<void> {
  const present = await deps.deployments.bySlug(name);
  if (!present?.builtin || present.state === 'decommissioned') return;
  await deps.updates.run(present.tenant, () => moveClockOf(deps, present, secret));
}

async function moveClockOf(deps: ControlDeps, present: Deployment, secret: string): Promise<void> {
  const { [secret]: before, ...secrets } = await deps.secrets.reveal(present.tenant);
  const offset = VALUES.clockOffset({ ...deps, name: present.slug, before });
  await bringIntoService(deps, present, {
    secrets: deps.secrets.seal(present.tenant, offset === undefined ? secrets : { ...secrets, [secret]: offset }),
  });
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
