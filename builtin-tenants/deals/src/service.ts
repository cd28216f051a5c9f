/** The service put together from its bindings: what the cron does, and what must be there before anything is answered. */
import { migrate } from '../../kit/migrate.ts';
import { isPrivate } from '../../kit/webhooks.ts';
import { MIGRATIONS } from './database/migrations.ts';
import { fillDemoHistory } from './demo/history.ts';
import { businessNow, type Env } from './environment.ts';
import { GatewayKeys } from './http/gateway-signature.ts';
import { publishDeals } from './prices/publish.ts';
import { type PublishedRules, publishRules } from './rules/published-rules.ts';
import { RULES } from './rules/ruleset.ts';
import { Scorer } from './rules/score.ts';
import { collectDue, configuredSources, givenSources, syncSources } from './sources/collect.ts';
import { chargeDue, resumeAll } from './watches/charging.ts';
import { payPlatform } from './watches/credit.ts';
import { deliverEvents } from './watches/deliver.ts';
import { evaluateDue } from './watches/run.ts';
import { Watches } from './watches/watch-store.ts';

export interface Service {
  env: Env;
  rules: PublishedRules;
  watches: Watches;
  keys: GatewayKeys;
  now(): number;
}

const ready = new WeakMap<Env['DB'], Service>();

/**
 * Migrated, with its rules and sources, and on a fresh host with deals of the demo shop. Once per isolate; requests that
 * come before do not wait for each other, since the one that is waited for may be cut off. Every step may run twice.
 */
export async function openService(env: Env): Promise<Service> {
  const known = ready.get(env.DB);
  if (known) return known;
  const service = await open(env);
  ready.set(env.DB, service);
  return service;
}

const scorer = new Scorer(RULES);

async function open(env: Env): Promise<Service> {
  const now = () => businessNow(env);
  await migrate(env.DB, MIGRATIONS);
  const rules = await publishRules(env.DB, now());
  const sources = configuredSources(env);
  await syncSources(env.DB, sources, now());
  const service: Service = { env, rules, watches: new Watches(env.DB), keys: new GatewayKeys(env), now };
  const demo = sources.find((source) => source.demo);
  if (demo) {
    await fillDemoHistory(env.DB, demo, now());
    const any = await env.DB.prepare("SELECT 1 AS one FROM deals WHERE status = 'active' AND expires_at > ? LIMIT 1")
      .bind(now())
      .first();
    if (!any) await publishDeals(env.DB, scorer, rulesReference(rules), now());
  }
  return service;
}

export function rulesReference({ version, digest }: PublishedRules): { version: number; digest: string } {
  return { version, digest };
}

/** What the minute brings. Every step stands for itself; a failed one is told in the run's outcome. */
export async function tick(service: Service): Promise<void> {
  const { env, watches, now, rules } = service;
  const credit = payPlatform(env);
  const steps: [name: string, work: () => Promise<unknown>][] = [
    // Paid first, evaluated afterwards: no watch runs unpaid. Slow sources come last: they keep no charge waiting.
    ['charge', () => chargeDue(watches, credit, now())],
    ['resume', () => resumeAll(watches, credit, now())],
    ['evaluate', () => evaluateDue(env.DB, watches, now())],
    ['deliver', () => deliverEvents(env.DB, now(), (webhook) => !isPrivate(webhook, givenSources(env)))],
    ['collect', () => collectDue(env.DB, now())],
    ['publish', () => publishDeals(env.DB, scorer, rulesReference(rules), now())],
    ['forget events', () => watches.forgetEvents(now())],
    ['forget nonces', () => env.DB.prepare('DELETE FROM nonces WHERE forget_at < ?').bind(Date.now()).run()],
  ];
  const failed: string[] = [];
  for (const [name, work] of steps) {
    try {
      await work();
    } catch (error) {
      console.error(name, error);
      failed.push(name);
    }
  }
  if (failed.length > 0) throw new Error(`failed: ${failed.join(', ')}`);
}
