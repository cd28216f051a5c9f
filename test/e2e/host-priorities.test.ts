/** Who goes first on a crowded machine: the edge, tenants that want little, the other parts, tenants that keep a core busy. */
import { readFileSync } from 'node:fs';
import os from 'node:os';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { commandOf, processTree } from '../bench/processes.ts';
import { deploy, mppFetch } from './support/callers.ts';
import { startHost, type TestHost } from './support/host.ts';
import { until } from './support/until.ts';

const MODEST = `export default { fetch: () => new Response('good morning') }`;
const BUSY = `export default { fetch() { let n = 0; for (let i = 0; i < 1e8; i++) n += i % 7; return new Response(String(n)); } }`;
const INSTANCE = /^\S*workerd serve/;
const [major, minor] = os.release().split('.');
/** Linux 6.12 and later take wishes for time slices. */
const TAKES_SLICES = Number(major) * 100 + Number(minor) >= 612;

let host: TestHost;
beforeEach(async () => {
  host = await startHost();
});
afterEach(() => host?.stop());

const running = (command: RegExp) => processTree([host.pid]).filter((pid) => command.test(commandOf(pid)));

/** Of the sessions where the kernel weighs those; else their own, field 19 of proc_pid_stat(5). */
function niceOf(command: RegExp): number[] {
  return running(command).map((pid) => {
    try {
      return Number(/nice (-?\d+)/.exec(readFileSync(`/proc/${pid}/autogroup`, 'utf8'))?.[1]);
    } catch {
      const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
      return Number(stat.slice(stat.lastIndexOf(')') + 2).split(' ')[16]);
    }
  });
}

/** CPU time of each instance so far, in ticks of 10 ms: fields 14 and 15 of proc_pid_stat(5). */
function ticksOf(command: RegExp): Map<number, number> {
  return new Map(
    running(command).map((pid) => {
      const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
      const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
      return [pid, Number(fields[11]) + Number(fields[12])];
    }),
  );
}

/**
 * Whether other programs of the machine leave no instance so much of a core that it can be told to want one, which is
 * half of it. Measured over seconds.
 */
function crowding(): () => boolean {
  const SECOND_MS = 1_000;
  let last = { at: performance.now(), ticks: ticksOf(INSTANCE) };
  let isCrowded = false;
  return () => {
    const elapsed = performance.now() - last.at;
    if (elapsed < SECOND_MS) return isCrowded;
    const ticks = ticksOf(INSTANCE);
    const used = [...ticks].map(([pid, now]) => (10 * (now - (last.ticks.get(pid) ?? 0))) / elapsed);
    last = { at: performance.now(), ticks };
    isCrowded = Math.max(...used) < 0.6;
    return isCrowded;
  };
}

/** ns; of a kernel that shows them. */
function slicesOf(command: RegExp): number[] {
  return running(command).flatMap((pid) => {
    const shown = /^se\.slice\s*:\s*(\d+)/m.exec(readFileSync(`/proc/${pid}/sched`, 'utf8'))?.[1];
    return shown === undefined ? [] : [Number(shown)];
  });
}

it('the edge, then who wants little, then the other parts, then who keeps a core busy, for as long as that lasts and others are served', async () => {
  const owner = mppFetch(host.network, 0);
  await deploy(owner, host.url, { slug: 'modest', code: MODEST });
  await deploy(owner, host.url, { slug: 'busy', code: BUSY });
  const ask = async (slug: string) => expect((await fetch(`${host.url}/${slug}/`)).status).toBe(200);
  /** Each on its own may hold for a moment on the way from one state to another. */
  const comesToBe = (state: () => boolean) =>
    until(
      () => state() || undefined,
      () => `instances ${niceOf(INSTANCE)}, slices ${slicesOf(INSTANCE)}, edge ${niceOf(/host\/edge\/main/)}`,
    );
  await Promise.all([ask('modest'), ask('busy')]);
  const [storage = 0] = niceOf(/store-process\/main/);
  // While a second passes without requests to two, the edge goes no further ahead than the other parts.
  const edge = await until(async () => {
    await Promise.all([ask('modest'), fetch(`${host.url}/healthz`)]);
    const [nice = 0] = niceOf(/host\/edge\/main/);
    return nice < storage ? nice : undefined;
  });
  const goFirst = () => niceOf(INSTANCE).filter((nice) => edge < nice && nice < storage).length;
  const yielding = () => niceOf(INSTANCE).filter((nice) => nice === 19).length;
  const quick = () => slicesOf(INSTANCE).filter((slice) => slice === 800_000).length;
  await comesToBe(() => goFirst() >= 2 && yielding() === 0 && (!TAKES_SLICES || quick() >= 2));
  if (TAKES_SLICES)
    expect([slicesOf(/host\/edge\/main/), slicesOf(/store-process\/main/)]).toEqual([[600_000], [1_000_000]]);

  let asking = true;
  let together = true;
  const busy = (async () => {
    while (asking) await Promise.all([ask('busy'), ask('busy'), together ? ask('modest') : undefined]);
  })();
  const isCrowded = crowding();
  try {
    await comesToBe(() => isCrowded() || (yielding() === 1 && goFirst() === 1 && (!TAKES_SLICES || quick() === 1)));
    together = false;
    // Nobody is left to step back for, nor for the edge to go before, where it can come back from that.
    const likeParts = () => niceOf(INSTANCE).filter((nice) => nice === storage).length;
    const alone = edge < 0 ? storage : edge;
    await comesToBe(
      () => isCrowded() || (likeParts() === 1 && goFirst() === 1 && niceOf(/host\/edge\/main/)[0] === alone),
    );
    together = true;
    await comesToBe(() => niceOf(/host\/edge\/main/)[0] === edge);
    await comesToBe(() => isCrowded() || yielding() === 1);
  } finally {
    asking = false;
    await busy;
  }
  await comesToBe(() => yielding() === 0);
});
