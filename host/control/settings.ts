/** Turns an owner's input into stored settings: applies defaults, cross-field rules and the checks of other modules. */
import { boundBindings, connectionSecrets, envBindings, NO_BINDINGS } from '../bindings/index.ts';
import { parsePaidRoutes } from '../payments/paid-routes.ts';
import type { Payments } from '../payments/types.ts';
import type { DeploymentSettings } from '../registry/deployments.ts';
import type { Deployment, StoredPaidRoute } from '../registry/schema/deployments.ts';
import { knownCompatibilityDate, newestCompatibilityDate } from '../runtime/deploy/compatibility.ts';
import { checkCron } from '../scheduler/cron-expression.ts';
import { parseConnectionString } from '../shared/connection-string.ts';
import type { BindingSet } from '../shared/contracts.ts';
import { fieldProblem } from './body.ts';
import type { DeploymentInput } from './deployment-input.ts';

/** Whose behaviour new deployments get unless they say otherwise; an older workerd or clock knows only older ones. */
const DEFAULT_COMPATIBILITY_DATE = '2026-11-01';

/** @throws Problem invalid_field */
export function newSettings(input: DeploymentInput, owner: string, now: number): DeploymentSettings {
  const newest = newestCompatibilityDate(now);
  const standard = newest < DEFAULT_COMPATIBILITY_DATE ? newest : DEFAULT_COMPATIBILITY_DATE;
  return {
    compatibilityDate: knownCompatibilityDate(input.compatibilityDate ?? standard, now),
    compatibilityFlags: input.compatibilityFlags ?? [],
    bindings: input.bindings ?? NO_BINDINGS,
    vars: input.vars ?? {},
    assets: null,
    crons: checkCrons(input.crons ?? []),
    paidRoutes: checkRoutes(input.paidRoutes ?? []),
    payTo: (input.payTo ?? owner).toLowerCase(),
    notify: input.notify ?? null,
  };
}

/** What changes and what stays. @throws Problem invalid_field */
export function changedSettings(input: DeploymentInput, present: Deployment, now: number): DeploymentSettings {
  return {
    compatibilityDate: knownCompatibilityDate(input.compatibilityDate ?? present.compatibilityDate, now),
    compatibilityFlags: input.compatibilityFlags ?? present.compatibilityFlags,
    bindings: input.bindings ?? present.bindings,
    vars: input.vars ?? present.vars,
    assets: present.assets,
    crons: input.crons ? checkCrons(input.crons) : present.crons,
    paidRoutes: input.paidRoutes ? checkRoutes(input.paidRoutes) : present.paidRoutes,
    payTo: (input.payTo ?? present.payTo).toLowerCase(),
    notify: input.notify === undefined ? present.notify : input.notify,
  };
}

/**
 * The operator's recipient is allowed: it only receives.
 * @throws Problem invalid_field where the revenue would go to a wallet that the host pays from
 */
export function checkPayTo({ payTo }: DeploymentSettings, { hostWallets }: Pick<Payments, 'hostWallets'>): void {
  if (hostWallets.some((wallet) => wallet === payTo))
    throw fieldProblem('/payTo', 'is a wallet of this host itself; name a wallet of your own');
}

/** What keeps data. */
const KEEPS_DATA = ['kv', 'd1', 'r2', 'durableObjects', 'queues', 'workflows', 'analytics'];

/** Whether a binding has data behind it. */
export function keepsData(bindings: BindingSet): boolean {
  return boundBindings(bindings).some(({ binding }) => KEEPS_DATA.includes(binding.key));
}

/**
 * Each name in env means one thing.
 * @param secrets names of the secrets as they will be
 * @throws Problem invalid_field
 */
export function checkNames({ bindings, vars, assets }: DeploymentSettings, secrets: Iterable<string>): void {
  const taken = new Map<string, string>();
  const take = (name: string, what: string, pointer: string) => {
    const other = taken.get(name);
    if (other) throw fieldProblem(pointer, `names ${name}, which is ${other} already; rename one of the two`);
    taken.set(name, what);
  };
  for (const { binding, name } of envBindings(bindings))
    take(name, `a binding (${binding.key})`, `/bindings/${binding.key}`);
  if (assets?.binding) take(assets.binding, 'the binding to static files', '/assets/binding');
  for (const name of Object.keys(vars)) take(name, 'a var', `/vars/${name}`);
  for (const name of secrets) take(name, 'a secret', '/secrets');
}

/**
 * Bindings to databases have what they connect by.
 * @param secrets as they will be
 * @throws Problem invalid_field that has nothing of a secret but its name
 */
export function checkDatabases(
  { bindings }: Pick<DeploymentSettings, 'bindings'>,
  secrets: Record<string, string>,
): void {
  for (const [secret, name] of connectionSecrets(boundBindings(bindings))) {
    const value = Object.hasOwn(secrets, secret) ? secrets[secret] : undefined;
    if (value === undefined) {
      throw fieldProblem(
        '/secrets',
        `has no ${secret}, which holds the connection string of env.${name}, such as postgres://user:password@host/database`,
      );
    }
    const address = parseConnectionString(value);
    if (typeof address === 'string') throw fieldProblem(`/secrets/${secret}`, address);
  }
}

function checkCrons(crons: string[]): string[] {
  for (const [index, cron] of crons.entries()) checkCron(cron, `/crons/${index}`);
  return [...new Set(crons)];
}

/** As they are read from the registry again. @throws Problem invalid_field */
export function storedRoutes(routes: unknown[]): StoredPaidRoute[] {
  return JSON.parse(JSON.stringify(checkRoutes(routes)));
}

function checkRoutes(routes: unknown[]): StoredPaidRoute[] {
  return parsePaidRoutes(routes) as unknown as StoredPaidRoute[];
}
