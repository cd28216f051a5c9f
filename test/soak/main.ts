/**
 * `npm run soak -- [--minutes 10] [--seed 1] [--pace 50]`: mixed load on tenants with KV, SQL, objects, Durable Objects, queues, alarms,
 * workflows and calls to each other, while every process of the host is killed in turn at random. Shows whether an acknowledged write was lost or
 * torn, a message, an alarm or a workflow was not done, an answer was wrong, a request hung, and how long the tenants were away after a process's death. Ends with 1
 * if any of that was seen, or a tenant was away for longer than it may.
 */
import { rmSync } from 'node:fs';
import os from 'node:os';
import { parseArgs } from 'node:util';
import { deploy, mppFetch } from '../e2e/support/callers.ts';
import { startHost } from '../e2e/support/host.ts';
import { call } from './call.ts';
import { clusterSoak } from './cluster.ts';
import { flatSoak } from './flat.ts';
import { BINDINGS, HANDLER } from './handler.ts';
import { hostileSoak } from './hostile.ts';
import { Kills } from './kills.ts';
import { Later } from './later.ts';
import { Load } from './load.ts';
import { report } from './report.ts';

const SLUGS = ['soak-a', 'soak-b', 'soak-c'];
const PROGRESS_MS = 30_000;

const { values } = parseArgs({
  options: {
    minutes: { type: 'string', default: '10' },
    seed: { type: 'string', default: '1' },
    /** Mean pause of a writer between two writes, ms. */
    pace: { type: 'string', default: '50' },
    hostile: { type: 'boolean' },
    flat: { type: 'boolean' },
    cluster: { type: 'boolean' },
    requests: { type: 'string', default: '1000000' },
    paid: { type: 'string', default: '100000' },
    refused: { type: 'string', default: '10000' },
    help: { type: 'boolean' },
  },
});
if (values.help) {
  console.log(`npm run soak -- [--hostile | --cluster] [--minutes 10] [--seed 1] [--pace 50]
npm run soak -- --flat [--requests 1000000] [--paid 100000] [--refused 10000]

Mixed load while every process of the host is killed in turn at random; ends with 1 if a write was lost or torn, an
answer was wrong, a request hung, or a tenant was away for too long.
  --hostile  instead: hostile tenants and floods; ends with 1 if a process of the host keeps memory, or a neighbour waits in vain
  --cluster  instead: three nodes in network namespaces, with everything around them failing in turn; ends with 1 if an
             acknowledged write was lost, a history contradicts itself, the books are wrong, or a takeover was late
  --flat     instead: so many requests, paid calls and refused credentials; ends with 1 if a process of the host holds
             20 MB more afterwards
  --minutes  how long, besides the check of all writes at the end
  --seed     of the random choices; the same seed kills in the same order
  --pace     mean pause of a writer between two writes, ms`);
  process.exit(0);
}
let state = Number(values.seed);
/** The same numbers for the same seed. */
function random(below: number): number {
  state = (Math.imul(state, 1_103_515_245) + 12_345) >>> 0;
  return (state >>> 8) % below;
}

if (values.flat) {
  const { requests, paid, refused } = values;
  const faults = await flatSoak({ requests: Number(requests), paid: Number(paid), refused: Number(refused) });
  process.exit(faults === 0 ? 0 : 1);
}
if (values.cluster) process.exit((await clusterSoak({ minutes: Number(values.minutes), random })) === 0 ? 0 : 1);
if (values.hostile) process.exit((await hostileSoak({ minutes: Number(values.minutes), random })) === 0 ? 0 : 1);

const host = await startHost({ flags: { 'log-level': 'silent' } });
let running = () => true;
const kills = new Kills({ host, slugs: SLUGS, random, running: () => running() });
try {
  const pay = mppFetch(host.network, 0);
  for (const slug of SLUGS) {
    await deploy(pay, host.url, { slug, code: HANDLER, bindings: BINDINGS });
    const { status, text } = await call(`${host.url}/${slug}/setup`);
    if (status !== 200) throw new Error(`${slug} answered ${status}: ${text}`);
  }
  const idle = await kills.measureIdle();
  const load = new Load({
    origin: host.url,
    ownName: `http://localhost:${host.port}`,
    slugs: SLUGS,
    random,
    running: () => running(),
    paceMs: Number(values.pace),
  });
  const later = new Later({
    origin: host.url,
    slugs: SLUGS,
    random,
    running: () => running(),
    paceMs: Number(values.pace),
  });
  const from = performance.now();
  const end = from + Number(values.minutes) * 60_000;
  running = () => performance.now() < end;
  const machineLoads: number[] = [];
  const progress = setInterval(() => {
    const { written, read, wrong } = load.counts;
    machineLoads.push(os.loadavg()[0] ?? 0);
    const seconds = Math.round((performance.now() - from) / 1_000);
    const machine = machineLoads.at(-1)?.toFixed(1);
    console.log(
      `${seconds} s: ${written} written, ${read} read, ${wrong} wrong, ${later.count} for later, ${kills.count} kills, load ${machine}`,
    );
  }, PROGRESS_MS);
  await Promise.all([load.run(), later.run(), kills.run()]).finally(() => clearInterval(progress));
  const seconds = (performance.now() - from) / 1_000;

  // Whatever was acknowledged is there after a last death of everything, too.
  await kills.host.kill();
  kills.host = await kills.host.restart();
  const kept = await load.verify();
  const done = await later.verify();
  let halves = 0;
  for (const slug of SLUGS) halves += Number((await call(`${host.url}/${slug}/torn`)).text);
  const faults = report({ load, kills, idle, seconds, machineLoads, ...kept, halves, done });
  process.exitCode = faults === 0 ? 0 : 1;
} finally {
  await kills.host.stop();
  rmSync(host.data, { recursive: true, force: true });
}
// Connections that are kept alive would hold the program for a while.
process.exit();
