/**
 * An owner's log over all nodes of a host: each keeps what its instances say, and whoever answers asks the others. A line
 * names its node, and its id says how far all nodes were, so that reading goes on from there at any node. One box has its
 * own log alone, and plain ids.
 */
import { once } from 'node:events';
import { PassThrough, type Readable } from 'node:stream';
import { setTimeout as delay } from 'node:timers/promises';
import { z } from 'zod';
import type { LogEntry, NewLogEntry, RequestEntry } from '../runtime/logs/log-entry.ts';
import type { LogStore } from '../runtime/logs/log-store.ts';
import type { TenantId } from '../shared/contracts.ts';
import type { Others, Pieces } from '../shared/others.ts';
import { Problem } from '../shared/problem.ts';
import type { LiveRequests } from './live-requests.ts';

/** Without an id: it is not kept. */
export type LogLine =
  | (NewLogEntry & { id?: number | string; time: number; node?: string })
  | (RequestEntry & { node?: string });

export interface LogQuery {
  tenant: TenantId;
  /** Newest lines, at most. */
  limit: number;
  /** The id of a line; undefined: from the beginning. */
  after: string | undefined;
  /** ms since the epoch. */
  since: number;
}

export interface NodeLogsParts {
  logs: Pick<LogStore, 'read' | 'tail'>;
  liveRequests: Pick<LiveRequests, 'watch'>;
  others: Others;
  now(): number;
}

/** How far a reader is: the last id of each node, and the time, for nodes that were not heard. */
interface Place {
  time: number;
  ids: Map<string, number>;
}

/** A node that follows its log for another says so often that it is there, ms. */
const SIGN_MS = 2_000;
const SILENT_MS = 3 * SIGN_MS;
/** A node that does not answer is asked again, and new ones are looked for, ms. */
const AGAIN_MS = 2_000;
/** Lines of other nodes that wait for a slow reader. */
const WAITING = 64;
const BEGIN: Place = { time: 0, ids: new Map() };

/** Of another node at a time: of lines that are there, and of those that come. */
const ASKED = { most: 4, takenMs: 5_000 };
const FOLLOWED = { most: 256 };
const MOST_BYTES = 16 * 1_048_576;
/** A text and a stack, each of whose characters takes six. */
const MOST_LINE = 131_072;
const MOST_LINES = 5_000;

const tenant = z.string().regex(/^[a-z0-9][a-z0-9-]{0,62}$/);
const readShape = z.strictObject({
  tenant,
  limit: z.int().min(0).max(MOST_LINES),
  after: z.int().min(0),
  since: z.number(),
});
/** With `watch`, the slug whose requests are told, too. */
const followShape = z.strictObject({ tenant, after: z.int().min(0), since: z.number(), watch: tenant.optional() });

/** What another node says, which may be anything: a line has a date, and a number that is part of the id for readers. */
const time = z.number().min(0).max(8.64e15);
const MOST_ID = 1e15 - 1;
const kept = { id: z.int().min(1).max(MOST_ID), time };
const entryShape: z.ZodType<LogEntry> = z.discriminatedUnion('kind', [
  z.object({
    ...kept,
    kind: z.literal('console'),
    level: z.enum(['debug', 'log', 'info', 'warn', 'error']),
    text: z.string(),
  }),
  z.object({ ...kept, kind: z.literal('exception'), text: z.string(), stack: z.string().optional() }),
  z.object({ ...kept, kind: z.literal('platform'), event: z.string().regex(/^[\w-]{1,64}$/), text: z.string() }),
]) as z.ZodType<LogEntry>;
const requestShape: z.ZodType<RequestEntry> = z.object({
  kind: z.literal('request'),
  time,
  method: z.string(),
  path: z.string(),
  status: z.int(),
  ms: z.number(),
});
const followedShape = z.union([entryShape, requestShape]);
const newestShape = z.int().min(0).max(MOST_ID);

interface NodeLog {
  newest: number;
  entries: LogEntry[];
}

export class NodeLogs {
  readonly #parts: NodeLogsParts;

  constructor(parts: NodeLogsParts) {
    this.#parts = parts;
    parts.others.answer('log', readShape, ASKED, (asked) => this.#answer(asked));
    parts.others.answer('log as it comes', followShape, FOLLOWED, (asked, gone) => this.#signs(asked, gone));
  }

  /** @returns `missing`: nodes that did not answer. @throws Problem invalid_field */
  async read(query: LogQuery): Promise<{ lines: LogLine[]; missing: string[] }> {
    const { own } = this.#parts.others;
    if (own === undefined) {
      const lines = await this.#parts.logs.read(query.tenant, { ...query, after: numberOf(query.after) });
      return { lines, missing: [] };
    }
    const { lines, missing } = await this.#readAll(own, query, placeOf(query.after));
    return { lines, missing };
  }

  /**
   * The newest lines, then every further one until `signal` aborts or the log is gone. Of another node, what is said while
   * it does not answer comes when it does.
   * @param watch slug whose requests are told, too
   * @param live called when nothing is missed any more of what happens here
   * @throws Problem invalid_field
   */
  async *follow(
    query: LogQuery,
    watch: string | undefined,
    signal: AbortSignal,
    live?: () => void,
  ): AsyncGenerator<LogLine> {
    const { logs, others } = this.#parts;
    if (others.own === undefined) {
      const [newest] = await logs.read(query.tenant, { limit: 1 });
      const recent = await logs.read(query.tenant, { ...query, after: numberOf(query.after) });
      yield* recent;
      yield* this.#own(query.tenant, recent.at(-1)?.id ?? newest?.id ?? 0, watch, signal, live);
      return;
    }
    const { lines, place } = await this.#readAll(others.own, query, placeOf(query.after));
    yield* lines;
    yield* this.#followAll(others.own, query.tenant, place, watch, signal, live);
  }

  async #readAll(own: string, { limit, since, tenant }: LogQuery, from: Place) {
    const asked = (node: string) => ({ tenant, limit, ...fromOf(from, node, since) });
    const [here, { answers, missing }] = await Promise.all([
      this.#read(asked(own)),
      this.#parts.others.all('log', { asked, mostBytes: MOST_BYTES, read: (body) => nodeLogOf(body, limit) }),
    ]);
    const all = [{ node: own, ...here }, ...answers.map(({ node, said }) => ({ node, ...said }))];
    const place: Place = { time: this.#parts.now(), ids: new Map(from.ids) };
    for (const { node, newest, entries } of all) place.ids.set(node, entries[0] ? entries[0].id - 1 : newest);
    const lines = all
      .flatMap(({ node, entries }) => entries.map((entry) => ({ entry, node })))
      .sort((a, b) => a.entry.time - b.entry.time || (a.node < b.node ? -1 : a.node > b.node ? 1 : 0))
      .map(({ entry, node }) => this.#line(place, node, entry));
    return { lines: lines.slice(Math.max(0, lines.length - limit)), missing, place };
  }

  /** The line of a node, after which readers are further. */
  #line(place: Place, node: string, entry: LogEntry | RequestEntry): LogLine {
    if (entry.kind === 'request') return { ...entry, node };
    place.ids.set(node, entry.id);
    return { ...entry, id: textOf({ ...place, time: entry.time }), node };
  }

  async *#followAll(
    own: string,
    tenant: TenantId,
    place: Place,
    watch: string | undefined,
    signal: AbortSignal,
    live?: () => void,
  ): AsyncGenerator<LogLine> {
    const { others } = this.#parts;
    const ended = new AbortController();
    const over = AbortSignal.any([signal, ended.signal]);
    const lines = new PassThrough({ objectMode: true, highWaterMark: WAITING });
    if (over.aborted) return;
    over.addEventListener('abort', () => lines.end());
    const put = async (line: LogLine) => {
      if (!over.aborted && !lines.write(line)) await once(lines, 'drain', { signal: over });
    };
    const here = async () => {
      const source = this.#own(tenant, place.ids.get(own) ?? 0, watch, over, live);
      for await (const entry of source) await put(this.#line(place, own, entry));
      ended.abort();
    };
    const there = async (node: string) => {
      let isMissing = false;
      for (; !over.aborted && others.names().includes(node); await delay(AGAIN_MS, undefined, { signal: over })) {
        const asked = { tenant, ...fromOf(place, node, 0), ...(watch === undefined ? {} : { watch }) };
        const stream = others.open(node, 'log as it comes', asked);
        const stop = () => stream.destroy();
        over.addEventListener('abort', stop);
        try {
          for await (const text of linesOf(stream)) {
            isMissing = false;
            if (text !== '') await put(this.#line(place, node, followedShape.parse(JSON.parse(text))));
          }
        } catch {
          // As where it ends: it is asked again.
        } finally {
          over.removeEventListener('abort', stop);
        }
        if (over.aborted || isMissing) continue;
        isMissing = true;
        const text = `The node ${node} does not answer. What it logs is told once it does.`;
        await put({ kind: 'platform', event: 'node-missing', text, time: this.#parts.now(), node });
      }
    };
    const followed = new Set<string>();
    const look = async () => {
      for (; !over.aborted; await delay(AGAIN_MS, undefined, { signal: over })) {
        for (const node of others.names().filter((name) => !followed.has(name))) {
          followed.add(node);
          void there(node)
            .catch(() => undefined)
            .finally(() => followed.delete(node));
        }
      }
    };
    void here().catch(() => ended.abort());
    void look().catch(() => undefined);
    try {
      yield* lines as AsyncIterable<LogLine>;
    } finally {
      ended.abort();
    }
  }

  async *#own(
    tenant: TenantId,
    after: number,
    watch: string | undefined,
    signal: AbortSignal,
    live?: () => void,
  ): AsyncGenerator<LogEntry | RequestEntry> {
    const { logs, liveRequests } = this.#parts;
    const begun = Promise.withResolvers<void>();
    const lines = logs.tail(tenant, signal, after, watch !== undefined, begun.resolve);
    const watching = watch === undefined ? undefined : liveRequests.watch(watch);
    void Promise.all([begun.promise, watching?.told]).then(live);
    try {
      yield* lines;
    } finally {
      watching?.end();
    }
  }

  async #read({ tenant, ...options }: z.infer<typeof readShape>): Promise<NodeLog> {
    const { logs } = this.#parts;
    const [newest] = await logs.read(tenant, { limit: 1 });
    return { newest: newest?.id ?? 0, entries: await logs.read(tenant, options) };
  }

  async *#answer(asked: z.infer<typeof readShape>): Pieces {
    const { newest, entries } = await this.#read(asked);
    yield [newest, ...entries].map((line) => JSON.stringify(line)).join('\n');
  }

  /** A line each, and empty ones where there is nothing to say. */
  #signs({ tenant, after, since, watch }: z.infer<typeof followShape>, gone: AbortSignal): Pieces {
    const out = new PassThrough();
    const sign = setInterval(() => out.writableLength === 0 && out.write('\n'), SIGN_MS);
    out.write('\n');
    const tell = async () => {
      for await (const entry of this.#own(tenant, after, watch, gone))
        if (entry.time >= since && !out.write(`${JSON.stringify(entry)}\n`)) await once(out, 'drain', { signal: gone });
    };
    void tell()
      .catch(() => undefined)
      .finally(() => {
        clearInterval(sign);
        out.end();
      });
    return out;
  }
}

/** Where a node goes on: from its last line, or where it was never heard, from the time of the others' last. */
function fromOf({ time, ids }: Place, node: string, since: number): { after: number; since: number } {
  const id = ids.get(node);
  return id === undefined ? { after: 0, since: Math.max(time, since) } : { after: id, since };
}

function textOf({ time, ids }: Place): string {
  return [time, ...[...ids].map(([node, id]) => `${node}=${id}`)].join(';');
}

/** @throws Problem invalid_field */
function placeOf(text: string | undefined): Place {
  if (text === undefined || text === '0') return BEGIN;
  const [time = '', ...nodes] = text.split(';');
  const ids = nodes.map((one) => /^([\w.-]{1,63})=(\d{1,15})$/.exec(one) ?? []);
  if (!/^\d{1,15}$/.test(time) || nodes.length === 0 || ids.some(([whole]) => whole === undefined)) throw badPlace();
  return { time: Number(time), ids: new Map(ids.map(([, node = '', id]) => [node, Number(id)])) };
}

/** @throws Problem invalid_field */
function numberOf(text = '0'): number {
  if (!/^\d{1,15}$/.test(text)) throw badPlace();
  return Number(text);
}

function badPlace(): Problem {
  return new Problem('invalid_field', 'after takes the id of a line.');
}

/** A line at a time, as long as it may be: of the whole, JSON could make a hundred times as much. @throws where it is none */
function nodeLogOf(body: Buffer, limit: number): NodeLog {
  const lines: string[] = [];
  for (let at = 0; at <= body.length; ) {
    const end = body.indexOf(10, at);
    const to = end < 0 ? body.length : end;
    if (to - at > MOST_LINE || lines.length > limit) throw new Error('that is no log');
    lines.push(body.toString('utf8', at, to));
    at = to + 1;
  }
  const [newest = '', ...entries] = lines;
  return {
    newest: newestShape.parse(JSON.parse(newest)),
    entries: entries.map((entry) => entryShape.parse(JSON.parse(entry))),
  };
}

/** @throws Error where nothing comes for long, or a line does not end */
async function* linesOf(stream: Readable): AsyncGenerator<string> {
  const late = () => setTimeout(() => stream.destroy(new Error('the node does not answer')), SILENT_MS);
  let timer = late();
  let rest = '';
  try {
    for await (const piece of stream.setEncoding('utf8') as AsyncIterable<string>) {
      // How long a reader takes is not its fault.
      clearTimeout(timer);
      const whole = (rest + piece).split('\n');
      rest = whole.pop() ?? '';
      if (rest.length > MOST_LINE) throw new Error('that is no log');
      yield* whole;
      timer = late();
    }
  } finally {
    clearTimeout(timer);
    stream.destroy();
  }
}
