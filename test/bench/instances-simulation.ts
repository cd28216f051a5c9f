/**
 * How throughput of one slug grows with cores, by simulation of the queues: callers that each wait for their answer,
 * edges, instances, and cores that are shared evenly by whoever has something to do. How many instances there are is
 * decided by the program's own `InstanceCount`. Prints the table of README.md: `node test/bench/instances-simulation.ts`.
 */
import { InstanceCount } from '../../host/runtime/instance-count.ts';

interface Setup {
  cores: number;
  most: number;
  edges: number;
  callers: number;
  /** CPU of a request, ms. */
  edgeMs: number;
  handlerMs: number;
}

interface Job {
  left: number;
  done: () => void;
}

/** A process with one event loop: jobs one after the other. */
class Loop {
  readonly queue: Job[] = [];
  /** Requests that one edge has sent here and that have no answer yet. */
  readonly waiting: number[];
  ranMs = 0;
  waitedMs = 0;

  constructor(edges: number) {
    this.waiting = new Array<number>(edges).fill(0);
  }
}

const WARM_MS = 60_000;
const COUNTED_MS = 10_000;
/** A start of an instance. */
const START_MS = 50;

/** @returns answers a second, and how many instances there were at the end */
function simulate({ cores, most, edges, callers, edgeMs, handlerMs }: Setup): { rate: number; instances: number } {
  const random = generator(7);
  const edgeLoops = Array.from({ length: edges }, () => new Loop(edges));
  const instances = [new Loop(edges)];
  const turns = new Array<number>(edges).fill(0);
  const count = new InstanceCount();
  let now = 0;
  let answered = 0;
  let idleMs = 0;
  let startsAt = Number.POSITIVE_INFINITY;
  let look = { at: 0, idleMs: 0, idleCores: 0 };

  function call(caller: number): void {
    const edge = caller % edges;
    edgeLoops[edge]?.queue.push({
      left: edgeMs * (0.5 + random()),
      done: () => {
        const instance = fewest(instances, edge, turns);
        instance.waiting[edge] = (instance.waiting[edge] ?? 0) + 1;
        instance.queue.push({
          left: -Math.log(1 - random()) * handlerMs,
          done: () => {
            instance.waiting[edge] = (instance.waiting[edge] ?? 0) - 1;
            if (now >= WARM_MS) answered++;
            call(caller);
          },
        });
      },
    });
  }
  for (let caller = 0; caller < callers; caller++) call(caller);

  while (now < WARM_MS + COUNTED_MS) {
    const busy = [...edgeLoops, ...instances].filter(({ queue }) => queue.length > 0);
    const speed = Math.min(1, cores / busy.length);
    const first = Math.min(...busy.map(({ queue }) => queue[0]?.left ?? 0));
    const step = Math.min(first / speed, Math.max(0, startsAt - now));
    now += step;
    idleMs += step * Math.max(0, cores - busy.length);
    for (const loop of busy) {
      loop.ranMs += step * speed;
      loop.waitedMs += step * (1 - speed);
      const [job] = loop.queue;
      if (!job) continue;
      job.left -= step * speed;
      if (job.left > 1e-9) continue;
      loop.queue.shift();
      job.done();
    }
    if (now >= startsAt) {
      instances.push(new Loop(edges));
      startsAt = Number.POSITIVE_INFINITY;
      count.startAfresh();
    }
    if (now - look.at >= 1_000) look = { at: now, idleMs, idleCores: (idleMs - look.idleMs) / (now - look.at) };
    if (startsAt !== Number.POSITIVE_INFINITY || now - look.at > 0) continue;
    const sum = (of: (loop: Loop) => number) => instances.reduce((total, loop) => total + of(loop), 0);
    const load = { count: instances.length, ranMs: sum((l) => l.ranMs), waitedMs: sum((l) => l.waitedMs) };
    const change = count.sample(now, { ...load, inFlight: callers }, look.idleCores, { most, idleCores: 0.5 });
    if (change === 'more') startsAt = now + START_MS;
    // What it has to do is left to the others' model of an end: it gets nothing new.
    if (change === 'fewer') leave(instances);
  }
  return { rate: answered / (COUNTED_MS / 1_000), instances: instances.length };
}

/** As an edge chooses (host/edge/instances.ts). */
function fewest(instances: Loop[], edge: number, turns: number[]): Loop {
  const turn = turns[edge] ?? 0;
  turns[edge] = turn + 1;
  const inTurn = instances.map((_, index) => instances[(turn + index) % instances.length] as Loop);
  return inTurn.reduce((best, one) => ((one.waiting[edge] ?? 0) < (best.waiting[edge] ?? 0) ? one : best));
}

function leave(instances: Loop[]): void {
  const last = instances.pop();
  const [first] = instances;
  for (const job of last?.queue ?? []) first?.queue.push(job);
}

/** Numerical Recipes' linear congruential generator: the table is the same at each run. */
function generator(seed: number): () => number {
  let state = seed;
  return () => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return state / 2 ** 32;
  };
}

const CORES = [1, 2, 3, 4, 6, 8];
const EDGE_MS = 0.035;

process.stdout.write(`| CPU of the handler | ${CORES.map((cores) => `${cores} cores`).join(' | ')} |\n`);
process.stdout.write(`| --- |${' --- |'.repeat(CORES.length)}\n`);
for (const handlerMs of [0.1, 0.5, 2, 10]) {
  const cells = CORES.map((cores) => {
    const setup = { cores, edges: cores, callers: 64, edgeMs: EDGE_MS, handlerMs };
    const one = simulate({ ...setup, most: 1 }).rate;
    const { rate, instances } = simulate({ ...setup, most: cores });
    // What the cores could do if none was ever idle.
    const bound = (cores * 1_000) / (EDGE_MS + handlerMs);
    return `${(rate / one).toFixed(2)} × with ${instances}, ${Math.round((100 * rate) / bound)} %`;
  });
  process.stdout.write(`| ${handlerMs} ms | ${cells.join(' | ')} |\n`);
}
