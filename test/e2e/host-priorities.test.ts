/** Who goes first on a crowded machine: the edge, tenants that want little, the other parts, tenants that keep a core busy. */
import { spawn } from 'node:child_process';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
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

/** More than instances do, where this user may say so: to its session and to itself. */
function weighMore(pid: number | undefined): void {
  if (pid === undefined || process.getuid?.() !== 0) return;
  os.setPriority(pid, -10);
  if (existsSync(`/proc/${pid}/autogroup`)) writeFileSync(`/proc/${pid}/autogroup`, '-10');
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

  // Other programs leave it next to nothing at first: that it wants a core is told all the same.
  const others = Array.from({ length: os.availableParallelism() }, () =>
    spawn(process.execPath, ['-e', 'for (;;);'], { detached: true, stdio: 'ignore' }),
  );
  for (const { pid } of others) weighMore(pid);
  const endOthers = () => others.map((other) => other.kill('SIGKILL'));
  let asking = true;
  let together = true;
  const busy = (async () => {
    while (asking) await Promise.all([ask('busy'), ask('busy'), together ? ask('modest') : undefined]);
  })();
  try {
    await comesToBe(() => yielding() === 1 && goFirst() === 1 && (!TAKES_SLICES || quick() === 1));
    endOthers();
    together = false;
    // Nobody is left to step back for, nor for the edge to go before, where it can come back from that.
    const likeParts = () => niceOf(INSTANCE).filter((nice) => nice === storage).length;
    const alone = edge < 0 ? storage : edge;
    await comesToBe(() => likeParts() === 1 && goFirst() === 1 && niceOf(/host\/edge\/main/)[0] === alone);
    together = true;
    await comesToBe(() => niceOf(/host\/edge\/main/)[0] === edge);
    await comesToBe(() => yielding() === 1);
  } finally {
    endOthers();
    asking = false;
    await busy;
  }
  await comesToBe(() => yielding() === 0);
});
