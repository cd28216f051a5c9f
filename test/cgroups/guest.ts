/**
 * Runs inside the virtual machine that scripts/test-cgroups.mjs starts, in a cgroup that is delegated as systemd does it: real sandboxes of
 * the runtime, whose limits the kernel keeps. Prints one line a check, and `end` last.
 */
import { existsSync, mkdirSync, readFileSync } from 'node:fs';
import http from 'node:http';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { type Cgroup, Cgroups } from '../../host/runtime/cgroups.ts';
import { InstanceProcess } from '../../host/runtime/instance-process.ts';
import { sandboxFolders, startPrewarmedSandbox } from '../../host/runtime/prewarmed-sandbox.ts';
import { detectSandbox } from '../../host/sandbox/index.ts';
import { spawnConfined } from '../../host/sandbox/spawn.ts';
import type { InstanceSpec } from '../../host/shared/contracts.ts';

const MB = 1_048_576;
const GROUP = '/sys/fs/cgroup/turnpike.service';
const BOMB = 'export default { fetch() { const held = []; for (;;) held.push(new Uint8Array(1e6).fill(1)); } };';
const BUSY = 'export default { fetch() { for (let i = 0; ; i++) if (i < 0) return new Response("x"); } };';

let failed = 0;
function check(what: string, good: boolean, measured: unknown): void {
  if (!good) failed += 1;
  console.log(`${good ? 'ok' : 'FAILED'}: ${what}: ${measured}`);
}

function specOf(code: string): InstanceSpec {
  return {
    tenant: 't00000000000000000000',
    slug: 'guest',
    revision: 1,
    bundle: { modules: [{ name: 'main.js', type: 'esModule', body: Buffer.from(code) }] },
    compatibilityDate: '2026-01-01',
    compatibilityFlags: [],
    secrets: {},
    bindings: {},
    vars: {},
    crons: [],
    egressAllow: [],
  } as unknown as InstanceSpec;
}

const opened = Cgroups.open();
if ('reason' in opened) throw new Error(opened.reason);
const { cgroups } = opened;
check(
  'the controllers are divided',
  /cpu memory pids/.test(read(`${GROUP}/cgroup.subtree_control`)),
  read(`${GROUP}/cgroup.subtree_control`),
);
check(
  'the host is in a group of its own',
  read(`${GROUP}/turnpike-host/cgroup.procs`).split('\n').includes(String(process.pid)),
  `weight ${read(`${GROUP}/turnpike-host/cpu.weight`)}`,
);

const sandbox = await detectSandbox('bwrap');
let number = 0;
async function start(code: string, memoryBytes: number): Promise<{ instance: InstanceProcess; group: string }> {
  const folder = `/run/cells/${number++}`;
  mkdirSync(folder, { recursive: true });
  const prewarmed = await startPrewarmedSandbox({
    sandbox,
    ...sandboxFolders(folder),
    cgroups: { groups: cgroups, memoryBytes },
  });
  const instance = await InstanceProcess.start({
    spec: specOf(code),
    generation: number,
    prewarmed,
    heapMb: 512,
    startTimeoutMs: 120_000,
    onLog: () => undefined,
    onDiagnostic: (text) => console.log(`workerd: ${text}`),
  });
  return { instance, group: `${GROUP}/cell-${prewarmed.process.helper}` };
}

function ask(socketPath: string): Promise<string> {
  return new Promise((resolve) => {
    http
      .get({ socketPath, path: '/' }, (response) => {
        response.resume().on('end', () => resolve(String(response.statusCode)));
      })
      .on('error', (error) => resolve(error.message));
  });
}

// Memory: the kernel ends what is quicker than any watchdog, and the runtime knows why.
const bomb = await start(BOMB, 64 * MB);
check(
  'memory.max is half as much again as the watchdog allows',
  read(`${bomb.group}/memory.max`) === String(96 * MB),
  read(`${bomb.group}/memory.max`),
);
const asked = Date.now();
void ask(bomb.instance.socket);
const exit = await bomb.instance.ended;
check(
  'a memory bomb is ended by the kernel, and named',
  exit.reason === 'memory_exceeded',
  `${exit.reason} after ${Date.now() - asked} ms: ${exit.detail}`,
);
check('its group is removed', await removed(bomb.group), path.basename(bomb.group));

// CPU: on one processor, two busy tenants and a busy host.
const [one, two] = [await start(BUSY, 256 * MB), await start(BUSY, 256 * MB)];
void ask(one.instance.socket);
void ask(two.instance.socket);
await delay(2_000);
const before = [one.instance.usage().cpuMs, two.instance.usage().cpuMs];
await delay(8_000);
const alone = [one, two].map(({ instance }, index) => instance.usage().cpuMs - (before[index] ?? 0));
check(
  'two busy tenants share alike',
  Math.min(...alone) / Math.max(...alone) > 0.8,
  `${alone.map((ms) => ms.toFixed(0)).join(' and ')} ms of CPU in 8 s`,
);
const start2 = [one.instance.usage().cpuMs, two.instance.usage().cpuMs];
const own = process.cpuUsage();
const until = Date.now() + 8_000;
while (Date.now() < until);
const { user, system } = process.cpuUsage(own);
const beside = [one, two].map(({ instance }, index) => instance.usage().cpuMs - (start2[index] ?? 0));
const share = (user + system) / 1_000 / ((user + system) / 1_000 + (beside[0] ?? 0) + (beside[1] ?? 0));
check('a busy host gets most of the processor', share > 0.75, `${(share * 100).toFixed(0)} % (10 : 1 : 1 are 83 %)`);
one.instance.weigh('hungry');
two.instance.weigh('light');
const start3 = [one.instance.usage().cpuMs, two.instance.usage().cpuMs];
await delay(4_000);
const yielded = [one, two].map(({ instance }, index) => instance.usage().cpuMs - (start3[index] ?? 0));
check(
  'who wants a core all the time yields to who wants it for a moment',
  (yielded[0] ?? 0) < 0.05 * (yielded[1] ?? 0),
  `${yielded.map((ms) => ms.toFixed(0)).join(' and ')} ms of CPU in 4 s`,
);
await Promise.all([one, two].map(({ instance }) => instance.kill('shutdown', 'The check is over.')));

// Processes: a fork bomb in a sandbox.
const forks = await spawnConfined(sandbox, {
  program: '/bin/busybox',
  args: ['sh', '-c', 'i=0; while [ $i -lt 200 ]; do /bin/busybox sleep 30 & i=$((i+1)); done; wait'],
  binds: [],
  uid: undefined,
  profile: 'database',
  limits: { openFiles: 64, fileBytes: 0 },
});
const group = cgroups.confine('forks', forks.helper ?? 0, { memoryBytes: 256 * MB, processes: 24 }) as Cgroup;
for (let waited = 0; !/max [1-9]/.test(read(`${GROUP}/forks/pids.events`)) && waited < 20_000; waited += 100)
  await delay(100);
const present = Number(read(`${GROUP}/forks/pids.current`));
const events = read(`${GROUP}/forks/pids.events`);
check(
  'pids.max stops a fork bomb',
  present <= 24 && /max [1-9]/.test(events),
  `${present} processes, events: ${events}`,
);
forks.kill();
await forks.ended;
group.remove();
check('its group is removed', await removed(`${GROUP}/forks`), 'forks');

// What a host that was killed left behind.
mkdirSync(`${GROUP}/cell-1`);
mkdirSync(`${GROUP}/cell-of-others`);
Cgroups.open();
check('an old empty group is removed at the next start', await removed(`${GROUP}/cell-1`), 'cell-1');
check('a group of others stays', existsSync(`${GROUP}/cell-of-others`), 'cell-of-others');

console.log(`end: ${failed} failed`);
process.exit(0);

async function removed(folder: string): Promise<boolean> {
  for (let waited = 0; existsSync(folder) && waited < 20_000; waited += 100) await delay(100);
  return !existsSync(folder);
}

function read(file: string): string {
  return readFileSync(file, 'utf8').trim();
}
