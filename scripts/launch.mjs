// Gets everything ready and runs a program of the project: Node 24, the packages of the lock file, then the program.
// Plain JavaScript for Node 18 and newer, because it is what brings Node 24. Nothing is done twice.
import { spawn, spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import fs, {
  accessSync,
  constants,
  existsSync,
  linkSync,
  mkdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';

/** The Node that is fetched where the running one is older than 24. */
const NODE_VERSION = '24.21.0';

/** What they take on the disk at least, MB; npm does not end where they find no room. */
const NODE_MB = 190;
const PACKAGES_MB = 1_000;
/** With less than this a disk is full, MB. */
const FULL_MB = 4;

export const root = dirname(dirname(fileURLToPath(import.meta.url)));
const privateFolder = join(root, '.node');
/** Compiled code, kept between runs. */
const compiledFolder = join(privateFolder, 'compiled');
/** Packages packed into few files, a folder for each version of them. */
const packedFolder = join(privateFolder, 'packed');

/**
 * How the process of the host starts: `env`, which the C library reads, and `flags` of Node. The pieces in which bodies
 * arrive (64 KiB) get pages of their own, which the system has back at once (60 MB less in a flood of bodies); room for
 * young objects is bounded (90 MB less).
 * @returns {{ env: Record<string, string>, flags: string[] }}
 */
export const hostProcess = () => JSON.parse(readFileSync(join(root, 'scripts/host-process.json'), 'utf8'));

/**
 * Runs a module of the project under Node 24 and never returns: the process ends with the module's exit code.
 * @param {{ entry: string, args: string[], development?: boolean, env?: Record<string, string>, flags?: string[] }} program
 *   `development`: tools are needed too; `env`: what the program finds in its environment beside ours; `flags`: of Node
 */
export async function launch({ entry, args, development = false, env = {}, flags = [] }) {
  const node = await prepare({ development });
  const path = join(root, entry);
  keepCompiledCode();
  if (node === process.execPath) {
    const missing =
      Object.keys(env).some((name) => process.env[name] === undefined) ||
      flags.some((flag) => !process.execArgv.includes(flag));
    // Another program in this process; it would lose a channel to its parent.
    if (missing && process.execve && !process.channel) {
      process.execve(node, [node, ...process.execArgv, ...flags, process.argv[1], ...args], { ...env, ...process.env });
    }
    process.argv = [node, path, ...args];
    // What reads the environment did so before it was set.
    const { enableCompileCache } = await import('node:module');
    if (process.env.NODE_COMPILE_CACHE) enableCompileCache(process.env.NODE_COMPILE_CACHE);
    await import(pathToFileURL(path).href);
    return;
  }
  const follow = pathToFileURL(join(root, 'scripts/follow-launcher.mjs')).href;
  process.exit(
    await run(node, [...flags, `--import=${follow}`, path, ...args], {
      stdio: ['inherit', 'inherit', 'inherit', 'ipc'],
      env: { ...env, ...process.env },
    }),
  );
}

/**
 * Lets the programs that follow keep their compiled code: to strip and compile hundreds of files takes most of the time
 * of a first start, and of a command. Where the folder is not ours to write, the host uses its data folder.
 */
export function keepCompiledCode() {
  if (process.env.NODE_COMPILE_CACHE || !isWritable(compiledFolder)) return;
  process.env.NODE_COMPILE_CACHE = compiledFolder;
}

/** Whether the folder is there, or could be made, and is ours to write. */
function isWritable(folder) {
  try {
    mkdirSync(folder, { recursive: true });
    accessSync(folder, constants.W_OK);
    return true;
  } catch {
    return false;
  }
}

/**
 * Makes sure of Node 24 and of the packages.
 * @returns {Promise<string>} the path of a Node 24 (or newer)
 */
export async function prepare({ development = false } = {}) {
  if (Number(process.versions.node.split('.')[0]) < 18) {
    fail(`Turnpike needs Node 18 or newer to start; this is ${process.version}. See https://nodejs.org`);
  }
  const bundled = bundledNode();
  const isOld = Number(process.versions.node.split('.')[0]) < 24;
  const needsNode = () => isOld && !isFetched(bundled);
  const needsPackages = () => !packagesMatch(development);
  if (needsNode() || needsPackages()) {
    const unlock = await lock().catch((error) => fail(`nothing can be written to ${privateFolder}: ${error.message}`));
    requireRoom((needsNode() ? NODE_MB : 0) + (existsSync(join(root, 'node_modules')) ? 0 : PACKAGES_MB), unlock);
    // Side by side: each waits for the network most of the time. What fails is told when neither runs any more.
    const work = [...(needsNode() ? [fetchNode(bundled)] : []), ...(needsPackages() ? [installPackages()] : [])];
    const failed = (await Promise.allSettled(work)).flatMap((result) =>
      result.status === 'rejected' ? [result.reason] : [],
    );
    unlock();
    if (failed.length > 0) fail(failed.map(({ message }) => message).join('\nturnpike: '));
  }
  packPackages();
  return isOld ? bundled.path : process.execPath;
}

/** Ends the program where less is free than what is to be fetched takes. */
function requireRoom(megabytes, unlock) {
  const free = freeMegabytes(root);
  if (free >= megabytes) return;
  unlock();
  fail(
    `${root} has ${free} MB of free space, and what Turnpike needs takes about ${megabytes} MB. Make room, then start again.`,
  );
}

/** Infinite where this Node cannot tell. */
function freeMegabytes(folder) {
  const found = fs.statfsSync?.(folder);
  return found === undefined ? Number.POSITIVE_INFINITY : Math.floor((found.bavail * found.bsize) / 1e6);
}

/**
 * Lets the programs that follow load packages packed, made once of just these versions. Where that fails, as in a folder
 * that is not ours to write, they load them from node_modules, which only takes longer.
 */
function packPackages() {
  const script = join(root, 'scripts/pack-packages.mjs');
  if (process.env.PACKED_PACKAGES !== undefined || !existsSync(script)) return;
  const key = createHash('sha256');
  for (const path of [join(root, 'package-lock.json'), script]) key.update(readFileSync(path));
  const folder = join(packedFolder, key.digest('hex').slice(0, 16));
  if (!existsSync(folder) && isWritable(packedFolder))
    spawnSync(process.execPath, [script, folder], { stdio: 'ignore' });
  if (existsSync(folder)) process.env.PACKED_PACKAGES = folder;
}

/** Runs a program with our terminal and passes signals on. */
export function run(command, args, options = {}) {
  return new Promise((resolve) => {
    const child = spawn(command, args, { stdio: 'inherit', ...options });
    const pass = (signal) => child.kill(signal);
    for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) process.on(signal, pass);
    child.once('error', (error) => {
      if (error.name !== 'AbortError') console.error(`turnpike: ${command} did not start: ${error.message}`);
      resolve(1);
    });
    child.once('exit', (code, signal) => {
      for (const name of ['SIGINT', 'SIGTERM', 'SIGHUP']) process.off(name, pass);
      resolve(code ?? (signal === 'SIGINT' ? 130 : signal === 'SIGTERM' ? 143 : 1));
    });
  });
}

/** From npm's own record, which it writes at the end: an interrupted fetch leaves a part of a Node. */
function isFetched({ name, path }) {
  const present = readJson(join(privateFolder, 'node_modules/.package-lock.json'));
  return existsSync(path) && present?.packages?.[`node_modules/${name}`]?.version === NODE_VERSION;
}

function bundledNode() {
  const platform = process.platform === 'win32' ? 'win' : process.platform;
  const name = `node-${platform}-${process.arch}`;
  const file = process.platform === 'win32' ? 'node.exe' : 'node';
  return { name, path: join(privateFolder, 'node_modules', name, 'bin', file) };
}

async function fetchNode({ name, path }) {
  mkdirSync(privateFolder, { recursive: true });
  const packages = join(privateFolder, 'node_modules');
  // npm takes what is there for whole.
  rmSync(packages, { recursive: true, force: true });
  // npm puts packages next to the nearest package.json: without one of its own it would be the project's.
  writeFileSync(join(privateFolder, 'package.json'), '{"private":true}\n');
  await npm(
    `Node ${NODE_VERSION}`,
    `fetching Node ${NODE_VERSION} (once; this is ${process.version})`,
    ['install', '--no-save', '--no-package-lock', `${name}@${NODE_VERSION}`],
    privateFolder,
  );
  if (spawnSync(path, ['--version'], { encoding: 'utf8' }).stdout?.trim() !== `v${NODE_VERSION}`) {
    rmSync(packages, { recursive: true, force: true });
    throw new Error(
      `the fetched Node ${NODE_VERSION} does not run on this system; install Node 24 from https://nodejs.org`,
    );
  }
}

async function installPackages() {
  // Not `npm ci`: it gives up where a registry lacks a package that only another system needs. This takes the versions
  // of the lock file as well, and checks their digests.
  await npm('packages', 'installing packages (once per version)', ['install', '--no-save'], root);
  if (!packagesMatch(false)) throw new Error('npm left packages out; remove node_modules and start again');
}

/**
 * Whether node_modules is what the lock file says, from npm's own record of it. Optional packages of other systems may
 * be missing, and tools may be where only the host is to run.
 */
function packagesMatch(development) {
  const wanted = readJson(join(root, 'package-lock.json'));
  const present = readJson(join(root, 'node_modules/.package-lock.json'));
  if (!wanted || !present) return false;
  return Object.entries(wanted.packages).every(([place, entry]) => {
    if (place === '' || entry.link) return true;
    const installed = present.packages[place];
    if (installed) return installed.version === entry.version;
    return entry.optional === true || entry.devOptional === true || (entry.dev === true && !development);
  });
}

function readJson(path) {
  try {
    return JSON.parse(readFileSync(path, 'utf8'));
  } catch {
    return undefined;
  }
}

/**
 * Runs npm, without lifecycle scripts, and says that it goes on.
 * @throws Error where npm fails
 */
async function npm(name, what, args, cwd) {
  console.error(`turnpike: ${what} …`);
  const startedAt = Date.now();
  const isFull = () => freeMegabytes(cwd) < FULL_MB;
  const stop = new AbortController();
  const ticking = setInterval(() => {
    console.error(`turnpike: ${name} … ${Math.round((Date.now() - startedAt) / 1000)} s`);
    // npm would try again for minutes, and takes two of them to end when it is asked to.
    if (isFull()) stop.abort();
  }, 10_000);
  const [command, ...before] = npmCommand();
  const quiet = ['--ignore-scripts', '--no-audit', '--no-fund', '--loglevel=error'];
  // Its standard output is no part of ours: a program that prints JSON must print only that.
  const code = await run(command, [...before, ...args, ...quiet], {
    cwd,
    stdio: ['ignore', 2, 2],
    env: npmEnvironment(),
    signal: stop.signal,
    killSignal: 'SIGKILL',
    shell: process.platform === 'win32' && command === 'npm',
  });
  clearInterval(ticking);
  if (code !== 0) {
    const advice = isFull() ? `The disk of ${cwd} is full: make room, then start again.` : 'Is the network there?';
    throw new Error(`${what} failed: npm ended with ${code}. ${advice}`);
  }
  console.error(`turnpike: ${name} done in ${((Date.now() - startedAt) / 1000).toFixed(1)} s`);
}

/** The npm that started us, else the one on the path. */
function npmCommand() {
  const started = process.env.npm_execpath ?? '';
  return /npm-cli\.c?js$/.test(started) ? [process.execPath, started] : ['npm'];
}

/** Without the settings that an outer npm put there for its own run, such as `--prefix` or `--omit`. */
function npmEnvironment() {
  const settings = /^npm_config_(local_prefix|prefix|omit|include|global|production|ignore_scripts|package_lock)$/i;
  return Object.fromEntries(Object.entries(process.env).filter(([name]) => !settings.test(name)));
}

/** One preparation at a time. A lock whose owner is gone is taken over. */
async function lock() {
  mkdirSync(privateFolder, { recursive: true });
  const path = join(privateFolder, 'launch.lock');
  let told = false;
  for (;;) {
    try {
      writeFileSync(path, String(process.pid), { flag: 'wx' });
      return () => rmSync(path, { force: true });
    } catch (error) {
      if (error.code !== 'EEXIST') throw error;
    }
    if (isAbandoned(path)) {
      // Renaming is atomic: of several that wait, one gets it, and a lock that is fresh by now is put back.
      const aside = `${path}.${process.pid}`;
      try {
        renameSync(path, aside);
        if (!isAbandoned(aside)) linkSync(aside, path);
        rmSync(aside, { force: true });
      } catch {
        // Another one was quicker.
      }
      continue;
    }
    if (!told) console.error('turnpike: waiting for another start of this project to finish its preparations …');
    told = true;
    await new Promise((resolve) => setTimeout(resolve, 200));
  }
}

/** Whether the owner of the lock is gone. One that has not written its id yet gets some seconds. */
function isAbandoned(path) {
  try {
    const owner = Number(readFileSync(path, 'utf8'));
    return owner > 0 ? !isAlive(owner) : Date.now() - statSync(path).mtimeMs > 5_000;
  } catch {
    return false;
  }
}

function isAlive(pid) {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return error.code === 'EPERM';
  }
}

/** @returns {never} */
function fail(message) {
  console.error(`turnpike: ${message}`);
  process.exit(1);
}
