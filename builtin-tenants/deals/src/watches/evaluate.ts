/**
 * What a watch remembers and what it tells: a pure step from the deals that match now, and the memory of the last
 * evaluation, to events and the next memory.
 */
import type { Deal } from '../prices/publish.ts';
import type { EventType, Trigger } from './watch.ts';

/** One deal as the watch last saw it. */
interface Remembered {
  /** Price that the last event (or the first sight) was about, minor units. */
  minor: number;
  /** Lowest price seen. */
  low: number;
  stock: boolean;
  /** Evaluations in a row in which it matched, up to `confirm`. */
  seen: number;
  /** The `enter` was told, or was not to be told. */
  entered: boolean;
  /** Evaluations in a row in which it did not match; 0 while it does. */
  gone: number;
}

export interface Memory {
  deals: Record<string, Remembered>;
  /** The first evaluation was made. */
  started: boolean;
}

export interface WatchEvent {
  type: EventType;
  deal: Deal | { id: string };
  /** Price before, for changes. */
  previous_minor?: number;
}

/** Deals that a watch keeps in mind; the least recent go first. */
const MOST_REMEMBERED = 500;

export function emptyMemory(): Memory {
  return { deals: {}, started: false };
}

export function evaluate(memory: Memory, matching: Deal[], trigger: Trigger): { events: WatchEvent[]; memory: Memory } {
  const events: WatchEvent[] = [];
  const next: Record<string, Remembered> = {};
  const silent = !memory.started && !trigger.notify_initial;
  for (const deal of matching) {
    const before = memory.deals[deal.id];
    next[deal.id] =
      before && (before.gone === 0 || before.entered)
        ? follow(before, deal, trigger, events)
        : meet(deal, trigger, events, silent);
  }
  for (const [id, before] of Object.entries(memory.deals)) {
    if (next[id]) continue;
    const gone = before.gone + 1;
    if (before.entered && gone === trigger.confirm && trigger.on.includes('expire'))
      events.push({ type: 'expire', deal: { id } });
    // Forgotten once it may enter again; a price that flaps does not enter twice before that.
    if (gone <= Math.max(trigger.rearm, trigger.confirm - 1)) next[id] = { ...before, seen: 0, gone };
  }
  // What matches now, then what left last: one that is forgotten while it matches would enter anew each time.
  const kept = Object.entries(next)
    .sort(([, a], [, b]) => a.gone - b.gone)
    .slice(0, MOST_REMEMBERED);
  return { events, memory: { deals: Object.fromEntries(kept), started: true } };
}

function meet(deal: Deal, trigger: Trigger, events: WatchEvent[], silent: boolean): Remembered {
  const remembered = {
    minor: deal.price.minor,
    low: deal.price.minor,
    stock: inStock(deal),
    seen: 1,
    entered: silent,
    gone: 0,
  };
  return confirmEntry(remembered, deal, trigger, events);
}

function follow(before: Remembered, deal: Deal, trigger: Trigger, events: WatchEvent[]): Remembered {
  const { minor } = deal.price;
  if (!before.entered) return confirmEntry({ ...before, seen: before.seen + 1, gone: 0 }, deal, trigger, events);
  const now: Remembered = { ...before, seen: before.seen + 1, gone: 0, stock: inStock(deal) };
  const change = Math.floor((Math.abs(minor - before.minor) * 10_000) / Math.max(1, before.minor));
  const told = (type: EventType) => {
    if (trigger.on.includes(type)) events.push({ type, deal, previous_minor: before.minor });
  };
  if (minor !== before.minor && change >= trigger.min_change_bps) {
    if (minor < before.low) told('new_low');
    told(minor < before.minor ? 'drop' : 'rise');
    now.minor = minor;
  }
  now.low = Math.min(before.low, minor);
  if (now.stock && !before.stock) told('restock');
  return now;
}

function confirmEntry(remembered: Remembered, deal: Deal, trigger: Trigger, events: WatchEvent[]): Remembered {
  if (remembered.entered || remembered.seen < trigger.confirm) return remembered;
  if (trigger.on.includes('enter')) events.push({ type: 'enter', deal });
  return { ...remembered, entered: true, minor: deal.price.minor, low: Math.min(remembered.low, deal.price.minor) };
}

function inStock(deal: Deal): boolean {
  return deal.availability === 'in_stock';
}
