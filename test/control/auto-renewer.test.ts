/** A renewal from credit that is cut off at each of its steps: what was taken for it is renewed for, or given back. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { pino } from 'pino';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { AutoRenewer } from '../../host/control/auto-renewer.ts';
import type { ControlDeps } from '../../host/control/deps.ts';
import type { ChargeOutcome, RenewalCredit } from '../../host/control/renewal-credit.ts';
import { DAY_MS, Deployments } from '../../host/registry/deployments.ts';
import type { Registry } from '../../host/registry/index.ts';
import { ManualClock } from '../../host/shared/clock.ts';
import { Problem } from '../../host/shared/problem.ts';
import { newDeployment } from '../registry/support/new-deployment.ts';
import { openTestRegistry } from '../registry/support/open.ts';

const NOW = Date.parse('2026-11-01T00:00:00Z');
const TERM = 30 * DAY_MS;
const NEVER = 8_640_000_000_000_000;
const CREDIT = JSON.stringify({ credit: { token: 'rnw_x', account: 'acc_x', mostUsd: '1.00' } });

let folder: string;
let registry: Registry;
let deployments: Deployments;
let clock: ManualClock;
let tenant: string;
/** What the account was charged, by key. */
let charges: Map<string, ChargeOutcome>;
/** The step at which the host is killed next. */
let killedAt: string | undefined;

beforeEach(async () => {
  folder = mkdtempSync(path.join(tmpdir(), 'tp-renewer-'));
  registry = await openTestRegistry(path.join(folder, 'registry.db'));
  deployments = new Deployments(registry.db);
  clock = new ManualClock(NOW);
  charges = new Map();
  const code = { digest: 'x', bytes: 1, handlers: ['fetch'] };
  const deployment = newDeployment({ slug: 'evergreen', code, termMs: TERM });
  await deployments.create(deployment, NOW);
  ({ tenant } = deployment);
  await deployments.autoRenewals.set({ tenant, mandate: CREDIT, until: NEVER }, NOW);
  clock.advance(TERM - DAY_MS);
});
afterEach(() => {
  registry.close();
  rmSync(folder, { recursive: true });
});

function kill(step: string): void {
  if (killedAt === step) throw new Error(`killed: ${step}`);
}

/** The ledger of the pay platform, as far as the host sees it. */
const credit: RenewalCredit = {
  check: async () => ({ token: 'rnw_x', account: 'acc_x', mostUsd: '1.00' }),
  async charge(_credit, { key }) {
    kill('noted');
    if (!charges.has(key)) charges.set(key, 'charged');
    kill('charged');
    return charges.get(key);
  },
  outcome: async (key) => charges.get(key) ?? 'unused',
  async giveBack(key) {
    if (charges.has(key)) charges.set(key, 'given_back');
    kill('given back');
  },
};

const run = (more: object = {}) =>
  new AutoRenewer({
    config: { slugs: { termDays: 30 }, prices: { renew: '0.20' }, runtime: { maxBodyBytes: 1 } },
    deployments,
    clock,
    log: pino({ level: 'silent' }),
    renewalCredit: credit,
    routes: { push: async () => kill('renewed') },
    logs: { append: async () => undefined },
    scheduleChanged: () => undefined,
    ...more,
  } as unknown as ControlDeps).run();

const MEANWHILE: Record<string, () => Promise<unknown>> = {
  nothing: async () => undefined,
  'renewed by hand': () => deployments.terms.renew(tenant, 'by hand', TERM, clock.now()),
  'ended by the owner': () => deployments.autoRenewals.end(tenant),
  'given another way': () => deployments.autoRenewals.set({ tenant, mandate: '{"nonce":"n"}', until: NEVER }, NOW),
  // Which has to wait until the charge has come to its end.
  'ended and begun anew': async () => {
    await deployments.autoRenewals.end(tenant);
    await deployments.autoRenewals.set({ tenant, mandate: CREDIT, until: NEVER }, NOW);
  },
  decommissioned: () => deployments.terms.decommission(tenant, clock.now(), DAY_MS, DAY_MS),
  'renewed by hand and ended': async () => {
    await deployments.terms.renew(tenant, 'by hand', TERM, clock.now());
    await deployments.autoRenewals.end(tenant);
  },
};
const STEPS = ['noted', 'charged', 'renewed'];

it.each(STEPS.flatMap((step) => Object.keys(MEANWHILE).map((what) => [step, what] as const)))(
  'killed when it was %s, then %s: credit is taken for as many terms as it gave',
  async (step, what) => {
    const before = (await deployments.byTenant(tenant))?.expiresAt ?? 0;
    killedAt = step;
    await run();
    await MEANWHILE[what]?.();
    // Once more killed where it gives back, then not any more.
    killedAt = 'given back';
    await run();
    killedAt = undefined;
    for (let n = 0; n < 2; n++) await run();
    const after = (await deployments.byTenant(tenant))?.expiresAt ?? 0;
    const byHand = what.startsWith('renewed by hand') ? 1 : 0;
    const taken = [...charges.values()].filter((outcome) => outcome === 'charged').length;
    expect({ terms: (after - before) / TERM }).toEqual({ terms: taken + byHand });
    expect(await deployments.autoRenewals.due(before + DAY_MS, Date.now())).toEqual([]);
    expect((await deployments.autoRenewals.of(tenant)) === undefined).toBe(/^ended|and ended$/.test(what));
  },
);

it('a payment that another node is at work on, or was when it ended, is presented again; no other is signed', async () => {
  await deployments.autoRenewals.set({ tenant, mandate: '{"nonce":"n"}', until: NEVER }, NOW);
  const presented: string[] = [];
  let signed = 0;
  const payments = {
    mandates: { pay: async () => `payment ${++signed}` },
    async paidOperation(request: Request) {
      const payment = request.headers.get('authorization');
      if (payment === null) return new Response(null, { status: 402 });
      presented.push(payment);
      if (presented.length === 1) throw new Problem('in_progress', 'This payment is being worked on already.');
      return new Response('renewed');
    },
  };
  for (let n = 0; n < 2; n++) await run({ payments, publicUrl: 'http://host.example' });
  expect(presented).toEqual(['payment 1', 'payment 1']);
  expect(await deployments.autoRenewals.of(tenant)).toMatchObject({ payment: null, failures: 0, lastFailure: null });
});
