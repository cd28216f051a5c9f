/**
 * A real S3 for tests: Ceph's radosgw with one monitor and one OSD in memory, on loopback. Packages (Debian):
 *   apt-get install --no-install-recommends radosgw ceph-mon ceph-osd ceph-base
 * Prints one line of JSON ({endpoint, accessKey, secretKey}) when it is ready, and removes everything it made once its
 * standard input ends or it gets SIGTERM. Ends with 3 where the packages are missing.
 */
import { execFile, spawn } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { existsSync, mkdirSync, mkdtempSync, openSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { request } from 'node:http';
import { createServer } from 'node:net';
import { arch, tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { promisify } from 'node:util';

const PROGRAMS = ['monmaptool', 'ceph-mon', 'ceph-osd', 'ceph', 'radosgw', 'radosgw-admin'];
const START_MS = 90_000;
const ACCESS_KEY = 'TURNPIKETEST';
const SECRET_KEY = 'not-a-secret-only-for-tests';

const missing = PROGRAMS.filter(
  (name) => !['/usr/bin', '/usr/sbin', '/bin'].some((bin) => existsSync(join(bin, name))),
);
if (missing.length > 0) {
  console.error(
    `Not installed: ${missing.join(', ')}. Run: apt-get install --no-install-recommends radosgw ceph-mon ceph-osd ceph-base`,
  );
  process.exit(3);
}

const folder = mkdtempSync(join(tmpdir(), 'radosgw-'));
const daemons = new Set();
let ending = false;
let ready = false;

async function end(code) {
  if (ending) return;
  ending = true;
  for (const daemon of [...daemons].reverse()) {
    if (daemon.exitCode !== null || daemon.signalCode !== null) continue;
    const exited = once(daemon, 'exit');
    daemon.kill('SIGKILL');
    await exited;
  }
  rmSync(folder, { recursive: true, force: true });
  process.exit(code);
}
process.on('SIGTERM', () => void end(0));
process.on('SIGINT', () => void end(0));
process.stdin.on('end', () => void end(0));
process.stdin.on('error', () => void end(0));
process.stdin.resume();

async function freePort() {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = /** @type {import('node:net').AddressInfo} */ (server.address());
  server.close();
  await once(server, 'close');
  return port;
}

function configuration(monitorPort, gatewayPort) {
  const lib = `/usr/lib/${arch() === 'arm64' ? 'aarch64' : 'x86_64'}-linux-gnu`;
  return `[global]
fsid = ${randomUUID()}
mon host = v1:127.0.0.1:${monitorPort}
mon initial members = a
auth cluster required = none
auth service required = none
auth client required = none
auth allow insecure global id reclaim = true
ms bind msgr2 = false
public addr = 127.0.0.1
cluster addr = 127.0.0.1
run dir = ${folder}/run
admin socket = ${folder}/run/$name.asok
log file = ${folder}/$name.log
mon cluster log file = ${folder}/cluster.log
plugin dir = ${lib}/ceph
erasure code dir = ${lib}/ceph/erasure-code
osd class dir = ${lib}/rados-classes
osd crush chooseleaf type = 0
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = 4
osd pool default pgp num = 4
osd pool default pg autoscale mode = off
mon allow pool size one = true
mon max pg per osd = 1000
mon data avail warn = 1
mon data avail crit = 1
osd objectstore = memstore
memstore device bytes = 3221225472
osd data = ${folder}/osd
mon data = ${folder}/mon
[client.rgw]
rgw frontends = beast endpoint=127.0.0.1:${gatewayPort} tcp_nodelay=1
rgw data = ${folder}/rgw
rgw thread pool size = 32
`;
}

const environment = { ...process.env, CEPH_CONF: join(folder, 'ceph.conf') };
const run = promisify(execFile);
/** A program that ends by itself; ended with the rest where that comes first. */
async function step(program, ...words) {
  const running = run(program, words, { env: environment, timeout: 60_000, killSignal: 'SIGKILL' });
  daemons.add(running.child);
  running.child.once('exit', () => daemons.delete(running.child));
  await running;
}

/** Runs a daemon to the end. ceph-osd 16 sometimes asks the monitor too early (`wrong fsid`) and is started again. */
function daemon(program, ...words) {
  const path = join(folder, `${program}.out`);
  const start = (tries) => {
    const output = openSync(path, 'a');
    const child = spawn(program, words, { env: environment, stdio: ['ignore', output, output] });
    daemons.add(child);
    child.on('exit', (code) => {
      daemons.delete(child);
      if (ending) return;
      if (tries > 0 && !ready) {
        setTimeout(() => start(tries - 1), 300);
        return;
      }
      console.error(`${program} ended with ${code}: ${readFileSync(path, 'utf8').slice(-2000)}`);
      void end(1);
    });
  };
  start(10);
}

function answers(port) {
  return new Promise((resolve) => {
    request({ host: '127.0.0.1', port }, (response) => {
      response.resume();
      resolve(response.statusCode < 500);
    })
      .on('error', () => resolve(false))
      .end();
  });
}

try {
  const [monitorPort, gatewayPort] = [await freePort(), await freePort()];
  for (const name of ['mon', 'osd', 'run', 'rgw']) mkdirSync(join(folder, name));
  writeFileSync(environment.CEPH_CONF, configuration(monitorPort, gatewayPort));
  const map = join(folder, 'monmap');
  await step('monmaptool', '--create', '--clobber', '--addv', 'a', `[v1:127.0.0.1:${monitorPort}/0]`, map);
  await step('ceph-mon', '--mkfs', '-i', 'a', '--monmap', map, '--mon-data', join(folder, 'mon'));
  daemon('ceph-mon', '-f', '-i', 'a');
  const osd = randomUUID();
  // It lets itself be reached before it takes commands. The same id twice is one daemon.
  for (const since = Date.now(); ; await delay(200)) {
    try {
      await step('ceph', 'osd', 'new', osd);
      break;
    } catch (error) {
      if (Date.now() - since > 30_000) throw error;
    }
  }
  await step('ceph-osd', '-i', '0', '--mkfs', '--osd-uuid', osd);
  daemon('ceph-osd', '-f', '-i', '0');
  daemon('radosgw', '-f', '-n', 'client.rgw');
  const deadline = Date.now() + START_MS;
  while (!(await answers(gatewayPort))) {
    if (Date.now() > deadline) throw new Error('radosgw did not answer in time');
    await delay(100);
  }
  await step(
    'radosgw-admin',
    'user',
    'create',
    '--uid=test',
    '--display-name=test',
    `--access-key=${ACCESS_KEY}`,
    `--secret-key=${SECRET_KEY}`,
  );
  ready = true;
  console.log(
    JSON.stringify({ endpoint: `http://127.0.0.1:${gatewayPort}`, accessKey: ACCESS_KEY, secretKey: SECRET_KEY }),
  );
} catch (error) {
  console.error(error.message);
  await end(1);
}
