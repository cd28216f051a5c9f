/**
 * `turnpike dev`: a host of the project's own on this machine, with test money and a store that stays in the project.
 * What is saved is in service at once. It is the same host as everywhere: the same runtime, the same bindings.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { existsSync, type FSWatcher, lstatSync, readdirSync, statSync, watch } from 'node:fs';
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { basename, dirname, join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import { Command } from 'commander';
import { deploy } from './deploy.ts';
import { follow } from './logs.ts';
import { onThisMachine } from './project/databases.ts';
import type { ProjectFlags } from './project/manifest.ts';
import { projectSecrets } from './project/open.ts';
import { addProjectOptions } from './project/options.ts';
import { type CommandDeps, DEV_FOLDER, processDeps, Session, withSession } from './session.ts';
import { asFailure, Failure, failureText } from './terminal/failure.ts';
import type { Terminal } from './terminal/terminal.ts';
import { update } from './update.ts';

const HOST = fileURLToPath(new URL('../main.ts', import.meta.url));
const OWN_FOLDER = dirname(DEV_FOLDER);
const CONSENT = 'dev';
/** wrangler's name for secrets of development. */
const DEV_VARS = '.dev.vars';
const READY_MS = 60_000;
/** Editors write a file in several steps. */
const SETTLE_MS = 60;
const UNWATCHED = /(^|[\\/])(node_modules|\.git|\.turnpike|\.wrangler[\\/](state|tmp))([\\/]|$)/;

interface DevFlags extends ProjectFlags {
  port?: string;
}

export function devCommand(deps?: CommandDeps): Command {
  const command = new Command('dev')
    .description('run the project here: reloads what is saved, costs nothing, keeps its data in .turnpike/dev')
    .argument('[entry]', 'file with the default export; default: as for deploy')
    .option('--port <number>', 'port of the host', '8787')
    .action(
      withSession(deps, (session, entry: string | undefined, flags: DevFlags) => dev(session, deps, entry, flags)),
    )
    .addHelpText(
      'after',
      `
Secrets come from ${DEV_VARS}, if it is there. Its data: turnpike d1|kv|r2 … --local. Paid routes take test money: turnpike pay --data .turnpike/dev <url>.`,
    );
  return addProjectOptions(command);
}

async function dev(
  session: Session,
  deps: CommandDeps = processDeps(),
  entry: string | undefined,
  flags: DevFlags,
): Promise<void> {
  const { terminal } = session;
  const project = await session.project(entry, flags);
  const slug = flags.slug ?? project.manifest.slug ?? slugOfFolder(project.folder);
  // As under wrangler dev: these are for this machine alone.
  const vars = join(project.folder, DEV_VARS);
  const secretsFrom = flags.secretsFrom ?? (existsSync(vars) ? [vars] : []);
  const data = await dataFolder(session, project.folder);
  // The deploy says what is wrong with them.
  const secrets = await projectSecrets(new Session(deps, { ...session.options, yes: true }), project, {
    secretsFrom,
    local: true,
  }).catch(() => ({}));
  const { addresses } = onThisMachine(project, secrets);
  const host = await startHost(data, flags.port ?? '8787', terminal, { [slug]: addresses });
  try {
    // The project's own host is not meant: nothing leaves this machine.
    const options = { ...session.options, hostUrl: host.url, wallet: 'test:0', data, yes: true, maxPay: '1' };
    const run = (out: Terminal['out']) => new Session({ ...deps, terminal: { ...deps.terminal, out } }, options);
    const say = (line: string) => terminal.out(`${line}\n`);
    const bring = async () => {
      const from = performance.now();
      const known = await fetch(`${host.url}/_admin/get/${slug}`);
      const state = known.ok ? ((await known.json()) as { state: string }).state : undefined;
      const work = state === 'active' ? update : deploy;
      await work(
        run(() => undefined),
        entry,
        { ...flags, slug, secretsFrom, local: true },
      );
      return Math.round(performance.now() - from);
    };
    const turn = turns(async (reason) => {
      await bring().then(
        (ms) => say(`${reason}, ${ms} ms`),
        (error) => say(failureText(asFailure(error))),
      );
    });
    await turn('ready');
    say(`  ${host.url}/${slug}/`);
    say(`  http://${slug}.localhost:${new URL(host.url).port}/`);
    const unwatch = watching(project.folder, () => void turn('reloaded'));
    const tail = run(terminal.out);
    void follow(tail, slug, `/_admin/${slug}/logs?limit=1`, { json: false, shows: () => true }).catch(() => undefined);
    await Promise.race([aborted(terminal.signal), host.ended]);
    unwatch();
    if (!terminal.signal.aborted) throw new Failure('unexpected', `The host ended: ${host.said().trim()}`);
  } finally {
    await host.stop();
  }
}

/**
 * Where the host keeps its data. A downloaded project may bring such a folder, with keys and code of a stranger, and with
 * links through which the host would write over the user's files.
 */
async function dataFolder({ consent }: Session, project: string): Promise<string> {
  const own = join(project, OWN_FOLDER);
  const isThere = lstatSync(own, { throwIfNoEntry: false }) !== undefined;
  if (isThere)
    await consent.require(project, {
      key: CONSENT,
      question: `Use the data of turnpike dev in ${own}? If the folder came with the project, say no, and remove it.`,
      otherwise: 'Remove the folder, or allow it once at a terminal.',
    });
  else await consent.remember(project, CONSENT);
  const data = join(project, DEV_FOLDER);
  await mkdir(data, { recursive: true });
  if (!isThere) await writeFile(join(own, '.gitignore'), '*\n');
  return data;
}

function slugOfFolder(folder: string): string {
  const name = basename(folder)
    .toLowerCase()
    .replaceAll(/[^a-z0-9]+/g, '-')
    .replaceAll(/^-+|-+$/g, '')
    .slice(0, 40);
  return name.length >= 3 ? name : `${name || 'my'}-project`;
}

/** One at a time; what is asked for meanwhile is done once more afterwards. */
function turns(work: (reason: string) => Promise<void>): (reason: string) => Promise<void> {
  let running: Promise<void> | undefined;
  let again = false;
  return (reason) => {
    if (running) {
      again = true;
      return running;
    }
    running = (async () => {
      do {
        again = false;
        await work(reason);
      } while (again);
    })().finally(() => {
      running = undefined;
    });
    return running;
  };
}

/**
 * Watches folders, not files: a file that an editor replaces is still seen, which Node's own recursive watching misses on
 * Linux (24.21).
 * @returns what ends it
 */
function watching(root: string, changed: () => void): () => void {
  const watchers = new Map<string, FSWatcher>();
  let timer: NodeJS.Timeout | undefined;
  const look = (folder: string): void => {
    if (watchers.has(folder) || UNWATCHED.test(relative(root, folder))) return;
    const found = readdirSync(folder, { withFileTypes: true, encoding: 'utf8' });
    const watcher = watch(folder, (_event, name) => {
      if (name === null || UNWATCHED.test(relative(root, join(folder, name)))) return;
      clearTimeout(timer);
      timer = setTimeout(changed, SETTLE_MS);
      attempt(join(folder, name));
    });
    const forget = () => {
      watcher.close();
      watchers.delete(folder);
    };
    watcher.on('error', forget);
    watchers.set(folder, watcher);
    for (const entry of found) if (entry.isDirectory()) attempt(join(folder, entry.name));
  };
  /** What is no folder, or gone again, needs no watching. */
  const attempt = (path: string): void => {
    if (statSync(path, { throwIfNoEntry: false })?.isDirectory()) look(path);
    else if (watchers.has(path)) watchers.get(path)?.emit('error', new Error('gone'));
  };
  look(root);
  return () => {
    clearTimeout(timer);
    for (const watcher of watchers.values()) watcher.close();
  };
}

function aborted(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve();
    else signal.addEventListener('abort', () => resolve(), { once: true });
  });
}

interface DevHost {
  url: string;
  ended: Promise<void>;
  /** The end of what it wrote. */
  said(): string;
  stop(): Promise<void>;
}

/** @param opened addresses on this machine by slug */
async function startHost(
  data: string,
  port: string,
  { env, signal }: Terminal,
  opened: Record<string, string[]>,
): Promise<DevHost> {
  const settings = {
    data,
    port,
    'admin-port': '0',
    'builtin-tenants-enabled': '',
    'payments-network': 'local',
    'log-level': 'error',
    'runtime-egress-allow': JSON.stringify(opened),
  };
  const args = Object.entries(settings).flatMap(([name, value]) => [`--${name}`, value]);
  // Settings in the user's environment are those of another host.
  const passed = Object.fromEntries(Object.entries(env).filter(([name]) => !name.startsWith('TURNPIKE_')));
  const child = spawn(process.execPath, [HOST, ...args], {
    // Where no turnpike.host.json is: settings in the data folder would be the project's, and could run programs.
    cwd: dirname(HOST),
    env: passed,
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let said = '';
  for (const stream of [child.stdout, child.stderr])
    stream.setEncoding('utf8').on('data', (text: string) => (said = (said + text).slice(-4_000)));
  const ended = new Promise<void>((resolve) => child.once('exit', () => resolve()));
  const stop = async () => {
    if (child.exitCode === null && child.signalCode === null) child.kill('SIGTERM');
    await ended;
  };
  try {
    return { url: await ready(child, data, port, signal, () => said), ended, said: () => said, stop };
  } catch (error) {
    await stop();
    throw error;
  }
}

/** Another host may answer at the port: this one says in its folder that it runs. */
async function ready(
  child: ChildProcess,
  data: string,
  port: string,
  signal: AbortSignal,
  said: () => string,
): Promise<string> {
  const url = `http://localhost:${port}`;
  for (const until = performance.now() + READY_MS; performance.now() < until && !signal.aborted; ) {
    if (child.exitCode !== null) throw new Failure('unexpected', `The host does not start: ${said().trim()}`);
    const text = await readFile(join(data, 'host.json'), 'utf8').catch(() => '{}');
    const isOurs = (JSON.parse(text || '{}') as { pid?: number }).pid === child.pid;
    const answer = isOurs ? await fetch(`${url}/healthz`).catch(() => undefined) : undefined;
    if (answer?.ok) return url;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  if (signal.aborted) throw new Failure('cancelled', 'Cancelled.');
  throw new Failure('unexpected', `The host is not ready after ${READY_MS / 1_000} s: ${said().trim()}`);
}
