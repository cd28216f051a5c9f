/**
 * Starts the anvil program that is the embedded chain, spoken to over a unix socket in the data folder.
 * anvil always opens a TCP port too, with methods that forge anything; where the system can, it runs in a network
 * namespace of its own, so that nobody reaches that port. https://getfoundry.sh/anvil/reference
 */
import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { readFile, rm, writeFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { Problem } from '../shared/problem.ts';
import { JsonRpcSocket } from './json-rpc-socket.ts';

const START_TIMEOUT_MS = 15_000;

export interface AnvilOptions {
  chainId: number;
  /** At most 107 bytes. */
  socketPath: string;
  /** Where the process id is noted, so that a later start can end a left-over process. */
  pidFile: string;
  /** A state to go on from; undefined: a new chain. */
  stateFile: string | undefined;
  confinement: Confinement;
}

export interface Anvil {
  pid: number;
  rpc: JsonRpcSocket;
  /** Resolves once the process is gone, whatever ended it. */
  exited: Promise<void>;
  kill(): void;
}

/** Command prefix that confines anvil, and what it achieves. */
export interface Confinement {
  prefix: string[];
  /** False: its TCP port is on loopback, where other users of this machine reach it. */
  portHidden: boolean;
}

/** Finds out by trying which confinement this system grants. */
export function findConfinement(): Confinement {
  // setpriv ends anvil together with us, even when we are killed. It must come after unshare: a new user namespace
  // clears the parent-death signal.
  const setpriv = ['setpriv', '--pdeathsig', 'KILL', '--'];
  const follow = works(setpriv) ? setpriv : [];
  for (const unshare of [
    ['unshare', '--net', '--'],
    ['unshare', '--user', '--map-current-user', '--net', '--'],
    ['unshare', '--user', '--map-root-user', '--net', '--'],
  ]) {
    if (works([...unshare, ...follow])) return { prefix: [...unshare, ...follow], portHidden: true };
  }
  return { prefix: follow, portHidden: false };
}

/** Starts anvil and waits until it answers. @throws Problem `start_failed` with what anvil said */
export async function startAnvil(options: AnvilOptions): Promise<Anvil> {
  await endLeftOver(options);
  await rm(options.socketPath, { force: true });
  const { prefix, portHidden } = options.confinement;
  const [command = '', ...args] = [
    ...prefix,
    anvilBinary(),
    ...['--network', 'tempo', '--hardfork', 'T4', '--chain-id', String(options.chainId)],
    ...['--ipc', options.socketPath],
    // Inside its own network namespace loopback is down, and only the wildcard address can be bound.
    ...['--host', portHidden ? '0.0.0.0' : '127.0.0.1', '--port', '0', '--no-cors'],
    ...['--base-fee', '0', '--gas-price', '0', '--disable-min-priority-fee'],
    // The one account of anvil's own is random and unlocked: it funds the first wallets and holds nothing of worth.
    ...['--accounts', '1', '--mnemonic-random'],
    ...['--prune-history', '64', '--transaction-block-keeper', '10000'],
    ...(options.stateFile === undefined ? [] : ['--load-state', options.stateFile]),
  ];
  const child = spawn(command, args, {
    cwd: dirname(options.socketPath),
    env: { PATH: process.env.PATH ?? '', HOME: dirname(options.socketPath) },
    // Its standard output holds the random mnemonic: it goes nowhere.
    stdio: ['ignore', 'ignore', 'pipe'],
  });
  const complaints = collect(child);
  const exited = new Promise<void>((resolve) => {
    child.once('exit', () => resolve());
    child.once('error', () => resolve());
  });
  const rpc = await connectWhenReady(child, options.socketPath, exited);
  if (!rpc || child.pid === undefined) {
    child.kill('SIGKILL');
    throw new Problem(
      'start_failed',
      `The local payment network did not start: ${complaints() || 'anvil ended at once'}`,
    );
  }
  await writeFile(options.pidFile, String(child.pid), { mode: 0o600 });
  return { pid: child.pid, rpc, exited, kill: () => child.kill('SIGKILL') };
}

function works(prefix: string[]): boolean {
  const [command = '', ...args] = [...prefix, 'true'];
  return spawnSync(command, args, { stdio: 'ignore', timeout: 5_000 }).status === 0;
}

/** The program inside the platform's own package: the wrapper package's launcher would be one process more. */
export function anvilBinary(): string {
  const system = { linux: 'linux', darwin: 'darwin', win32: 'win32' }[process.platform as string];
  const machine = { x64: 'amd64', arm64: 'arm64' }[process.arch as string];
  const wrapper = createRequire(import.meta.url).resolve('@foundry-rs/anvil/package.json');
  try {
    const found = createRequire(wrapper).resolve(`@foundry-rs/anvil-${system}-${machine}/package.json`);
    const binary = join(dirname(found), 'bin', process.platform === 'win32' ? 'anvil.exe' : 'anvil');
    if (existsSync(binary)) return binary;
  } catch {
    // The platform's package is missing: the message below says what to do.
  }
  throw new Problem(
    'start_failed',
    `No local payment network for ${process.platform}-${process.arch}: remove node_modules and start again, or set payments.network to tempo.`,
  );
}

/** The last 2 kB of what anvil wrote to standard error. */
function collect(child: ChildProcess): () => string {
  let text = '';
  child.on('error', (error) => {
    text += error.message;
  });
  child.stderr?.setEncoding('utf8').on('data', (piece: string) => {
    text = (text + piece).slice(-2_000);
  });
  return () => text.trim();
}

async function connectWhenReady(
  child: ChildProcess,
  path: string,
  exited: Promise<void>,
): Promise<JsonRpcSocket | undefined> {
  let gone = false;
  void exited.then(() => {
    gone = true;
  });
  const deadline = performance.now() + START_TIMEOUT_MS;
  while (!gone && child.exitCode === null && performance.now() < deadline) {
    try {
      const rpc = await JsonRpcSocket.open(path);
      await rpc.request('eth_chainId');
      return rpc;
    } catch {
      await new Promise((resolve) => setTimeout(resolve, 5));
    }
  }
  return undefined;
}

/** Ends a process that an earlier host left behind, if the noted id still is that process. */
async function endLeftOver(options: AnvilOptions): Promise<void> {
  const pid = Number(await readFile(options.pidFile, 'utf8').catch(() => ''));
  if (!Number.isInteger(pid) || pid <= 1) return;
  if (!(await isOurs(pid, options.socketPath))) return;
  process.kill(pid, 'SIGKILL');
  const deadline = performance.now() + 2_000;
  while ((await isOurs(pid, options.socketPath)) && performance.now() < deadline) {
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}

async function isOurs(pid: number, socketPath: string): Promise<boolean> {
  if (process.platform === 'linux') {
    return (await readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => '')).includes(socketPath);
  }
  return spawnSync('ps', ['-o', 'args=', '-p', String(pid)], { encoding: 'utf8' }).stdout.includes(socketPath);
}
