/** The history over all nodes of a host: each keeps its own minutes, and whoever is asked adds up what the others tell. */
import { z } from 'zod';
import type { TenantId } from '../shared/contracts.ts';
import type { Others, Pieces } from '../shared/others.ts';
import { BUSIEST, COUNTERS, GAUGES, type History, LATENCY_CLASSES, PROCESS_GROUPS } from './history.ts';
import type { HistorySampler } from './history-sampler.ts';
import {
  historyOf,
  MOST_STEPS,
  MOST_TENANTS,
  RANGES,
  type Range,
  type Steps,
  stepsOf,
  tenantHistory,
} from './history-view.ts';

export interface NodeHistoryParts {
  history: History;
  sampler: Pick<HistorySampler, 'refresh'>;
  others: Others;
}

type TenantPoints = Awaited<ReturnType<typeof tenantHistory>>;

/** What 30 days add up to changes little meanwhile, and takes a quarter of a second. */
const MONTH_KEPT_MS = 60_000;

/** The last moment that has a date, ms. */
const LAST_MS = 8.64e15;
const tenant = z.string().regex(/^[a-z0-9][a-z0-9-]{0,62}$/);
const time = z.number().min(-LAST_MS).max(LAST_MS);
const askedShape = z.strictObject({
  range: z.enum(Object.keys(RANGES) as [Range, ...Range[]]),
  now: time,
  tenant: tenant.optional(),
});
/** One takes a quarter of a second. */
const ASKED = { most: 2, takenMs: 5_000 };

/** What another node may say: some of it is added up, and all of it is shown. */
const figure = z.number().min(0).max(Number.MAX_SAFE_INTEGER);
const ofGroups = z.record(z.enum(PROCESS_GROUPS), figure);
const trafficShape = z.object({ tenant, requests: figure, errors: figure });
const named = <Name extends string>(names: readonly Name[]) =>
  Object.fromEntries(names.map((name) => [name, figure])) as Record<Name, typeof figure>;
const minuteShape = z.object({
  ...named(COUNTERS),
  ...named(GAUGES),
  latency: z.array(figure).length(LATENCY_CLASSES),
  cpuMs: ofGroups,
  memory: ofGroups,
  busiest: z.array(trafficShape).max(BUSIEST),
});
const stepsShape: z.ZodType<Steps> = z.object({
  steps: z.array(z.object({ at: time, known: figure, sum: minuteShape, memory: ofGroups })).max(MOST_STEPS),
  busiest: z.array(trafficShape).max(MOST_TENANTS),
});
const pointsShape: z.ZodType<TenantPoints> = z
  .array(z.object({ at: time, requests: figure, errors: figure }))
  .max(MOST_STEPS);
/** Three times what most steps take. */
const MOST_BYTES = 1_048_576;

export class NodeHistory {
  readonly #parts: NodeHistoryParts;
  #month: { at: number; answer: Promise<Steps> } | undefined;

  constructor(parts: NodeHistoryParts) {
    this.#parts = parts;
    parts.others.answer('history', askedShape, ASKED, (asked) => this.#answer(asked));
  }

  /** @returns `missing`: nodes that did not answer */
  async host(range: Range, now: number) {
    const [own, { bodies, missing }] = await Promise.all([
      this.#steps(range, now),
      this.#ask(stepsShape, { range, now }),
    ]);
    return { ...historyOf([own, ...bodies]), missing };
  }

  async tenant(tenant: TenantId, range: Range, now: number) {
    const [own, { bodies, missing }] = await Promise.all([
      this.#tenant(tenant, range, now),
      this.#ask(pointsShape, { range, now, tenant }),
    ]);
    const all = bodies.flat();
    const points = own.map(({ at, requests, errors }) => {
      const others = all.filter((point) => point.at === at);
      return {
        at,
        requests: others.reduce((sum, point) => sum + point.requests, requests),
        errors: others.reduce((sum, point) => sum + point.errors, errors),
      };
    });
    return { points, missing };
  }

  async #ask<T>(shape: z.ZodType<T>, asked: z.infer<typeof askedShape>): Promise<{ bodies: T[]; missing: string[] }> {
    const read = (body: Buffer) => shape.parse(JSON.parse(body.toString()));
    const { answers, missing } = await this.#parts.others.all('history', {
      asked: () => asked,
      mostBytes: MOST_BYTES,
      read,
    });
    return { bodies: answers.map(({ said }) => said), missing };
  }

  async *#answer({ range, now, tenant }: z.infer<typeof askedShape>): Pieces {
    yield JSON.stringify(await (tenant === undefined ? this.#steps(range, now) : this.#tenant(tenant, range, now)));
  }

  async #tenant(tenant: TenantId, range: Range, now: number): Promise<TenantPoints> {
    await this.#parts.sampler.refresh();
    return tenantHistory(this.#parts.history, tenant, range, now);
  }

  async #steps(range: Range, now: number): Promise<Steps> {
    const { history, sampler } = this.#parts;
    await sampler.refresh();
    if (range !== 'month') return stepsOf(history, range, now);
    if (!this.#month || Math.abs(now - this.#month.at) > MONTH_KEPT_MS) {
      const answer = stepsOf(history, range, now);
      this.#month = { at: now, answer };
      answer.catch(() => {
        this.#month = undefined;
      });
    }
    return this.#month.answer;
  }
}
