/** The history over all nodes of a host: each keeps its own minutes, and whoever is asked adds up what the others tell. */
import { z } from 'zod';
import type { TenantId } from '../shared/contracts.ts';
import type { Others, Pieces } from '../shared/others.ts';
import type { History } from './history.ts';
import type { HistorySampler } from './history-sampler.ts';
import { historyOf, RANGES, type Range, type Steps, stepsOf, tenantHistory } from './history-view.ts';

export interface NodeHistoryParts {
  history: History;
  sampler: Pick<HistorySampler, 'refresh'>;
  others: Others;
}

type TenantPoints = Awaited<ReturnType<typeof tenantHistory>>;

/** What 30 days add up to changes little meanwhile, and takes a quarter of a second. */
const MONTH_KEPT_MS = 60_000;

const askedShape = z.strictObject({
  range: z.enum(Object.keys(RANGES) as [Range, ...Range[]]),
  now: z.number(),
  tenant: z.string().optional(),
});

export class NodeHistory {
  readonly #parts: NodeHistoryParts;
  #month: { at: number; answer: Promise<Steps> } | undefined;

  constructor(parts: NodeHistoryParts) {
    this.#parts = parts;
    parts.others.answer('history', askedShape, (asked) => this.#answer(asked));
  }

  /** @returns `missing`: nodes that did not answer */
  async host(range: Range, now: number) {
    const [own, { bodies, missing }] = await Promise.all([this.#steps(range, now), this.#ask<Steps>({ range, now })]);
    return { ...historyOf([own, ...bodies]), missing };
  }

  async tenant(tenant: TenantId, range: Range, now: number) {
    const [own, { bodies, missing }] = await Promise.all([
      this.#tenant(tenant, range, now),
      this.#ask<TenantPoints>({ range, now, tenant }),
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

  async #ask<T>(asked: z.infer<typeof askedShape>): Promise<{ bodies: T[]; missing: string[] }> {
    const { answers, missing } = await this.#parts.others.all('history', () => asked);
    return { bodies: answers.map(({ body }) => JSON.parse(body.toString()) as T), missing };
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
