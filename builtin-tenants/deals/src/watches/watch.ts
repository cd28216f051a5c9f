/** A watch as callers write and read it. Conditions are the structured filter of GET /v1/deals, never code. */
import * as z from 'zod/mini';
import { querySchema } from '../prices/query.ts';
import { fault, invalidField, Problem } from '../problem.ts';
import { wholeSecond } from './periods.ts';

export const EVENTS = ['enter', 'new_low', 'drop', 'rise', 'restock', 'expire'] as const;
export type EventType = (typeof EVENTS)[number];

const triggerSchema = z.strictObject({
  on: z.array(z.enum(EVENTS)).check(z.minLength(1), z.maxLength(EVENTS.length)),
  /** Smallest change of the price that counts, 1/100 %. */
  min_change_bps: z.optional(z.number().check(z.int(), z.gte(0), z.lte(10_000))),
  /** So many evaluations in a row must agree before an event is told. */
  confirm: z.optional(z.number().check(z.int(), z.gte(1), z.lte(10))),
  /** After a deal left, so many evaluations must pass without it before it can enter again. */
  rearm: z.optional(z.number().check(z.int(), z.gte(0), z.lte(100))),
  /** Tell also what matches at the first evaluation. */
  notify_initial: z.optional(z.boolean()),
});

const deliverySchema = z.strictObject({
  webhook: z.optional(z.url({ protocol: /^https?$/ }).check(z.maxLength(2_000))),
  feed: z.optional(z.boolean()),
});

export const watchSchema = z.strictObject({
  query: querySchema,
  trigger: triggerSchema,
  every_s: z.optional(z.number().check(z.int(), z.gte(900), z.lte(86_400))),
  delivery: z.optional(deliverySchema),
});

export interface Trigger {
  on: EventType[];
  min_change_bps: number;
  confirm: number;
  rearm: number;
  notify_initial: boolean;
}

export interface WatchInput {
  query: z.infer<typeof querySchema>;
  trigger: Trigger;
  every_s: number;
  delivery: { webhook?: string | undefined; feed: boolean };
}

const DEFAULT_EVERY_S = 3_600;

/** @throws Problem invalid_json, invalid_field */
export function parseWatch(body: Uint8Array): WatchInput {
  let document: unknown;
  try {
    document = JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(body));
  } catch {
    throw new Problem('invalid_json', 'The body is not JSON; send {"query": {…}, "trigger": {"on": ["enter"]}}.');
  }
  const parsed = watchSchema.safeParse(document);
  if (!parsed.success) {
    const [issue] = parsed.error.issues;
    const pointer = `/${(issue?.path ?? []).join('/')}`;
    throw issue?.code === 'unrecognized_keys'
      ? invalidField(`${pointer === '/' ? '' : pointer}/${issue.keys[0]}`, 'is not known')
      : invalidField(pointer, fault(issue));
  }
  const { query, trigger, every_s = DEFAULT_EVERY_S, delivery = {} } = parsed.data;
  if (query.max_price_minor !== undefined && query.currency === undefined) {
    throw invalidField('/query/max_price_minor', 'needs currency: prices are not converted');
  }
  return {
    query,
    trigger: {
      on: [...new Set(trigger.on)],
      min_change_bps: trigger.min_change_bps ?? 0,
      confirm: trigger.confirm ?? 1,
      rearm: trigger.rearm ?? 0,
      notify_initial: trigger.notify_initial ?? false,
    },
    every_s,
    delivery: { ...(delivery.webhook ? { webhook: delivery.webhook } : {}), feed: delivery.feed ?? true },
  };
}

export type WatchState = 'running' | 'suspended' | 'deleted';

export interface WatchRow {
  id: string;
  account: string;
  state: WatchState;
  query: string;
  trigger: string;
  every_s: number;
  delivery: string;
  created_at: number;
  updated_at: number;
  paid_through: number;
  suspended_at: number | null;
  /** Since when its owner has it stand still; it is suspended then. */
  paused_at: number | null;
  next_at: number;
}

export function watchView(row: WatchRow) {
  return {
    id: row.id,
    state: row.paused_at === null ? row.state : 'paused',
    query: JSON.parse(row.query) as object,
    trigger: JSON.parse(row.trigger) as object,
    every_s: row.every_s,
    delivery: JSON.parse(row.delivery) as object,
    // Kept to the millisecond for the order of watches; days are counted in whole seconds.
    created_at: iso(wholeSecond(row.created_at)),
    paid_through: iso(row.paid_through),
    ...(row.state === 'suspended' && row.suspended_at !== null ? { suspended_at: iso(row.suspended_at) } : {}),
    next_evaluation_at: row.state === 'running' ? iso(row.next_at) : null,
  };
}

export function iso(ms: number): string {
  return new Date(ms).toISOString();
}
