/** What the machine offers: Node, packages, sandbox, system programs, disk, the local chain's program. */
import { execFile } from 'node:child_process';
import { accessSync, constants, existsSync, readFileSync } from 'node:fs';
import { access, statfs } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { basename, delimiter, dirname, join } from 'node:path';
import { promisify } from 'node:util';
import systemPackages from '../../../config/system-packages.json' with { type: 'json' };
import { anvilBinary, findConfinement } from '../../local-network/anvil.ts';
import { type Attempt, tryToBreak } from '../../runtime/doctor.ts';
import { detectSandbox } from '../../sandbox/index.ts';
import { lacksUsers } from '../../sandbox/users.ts';
import type { Config } from '../../shared/config.ts';
import { type Finding, finding } from './check.ts';

const LOW_DISK_BYTES = 1_000_000_000;
/** Secrets of the speech tenant by which another server transcribes. */
const SPEECH_ELSEWHERE = /^(DEEPGRAM_API_KEY|OPENAI_BASE_URL)$/;
const require = createRequire(import.meta.url);

export function checkNode(): Promise<Finding> {
  return finding('node', async () => {
    const major = Number(process.versions.node.split('.')[0]);
    if (major >= 24) return { state: 'ok', detail: `${process.version}, ${process.platform}-${process.arch}` };
    return {
      state: 'fault',
      detail: `${process.version} is too old`,
      fix: 'start by npm start, which fetches Node 24',
    };
  });
}

export function checkPackages(): Promise<Finding> {
  return finding('packages', async () => {
    const root = dirname(require.resolve('../../../package.json'));
    const { dependencies } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')) as {
      dependencies: Record<string, string>;
    };
    const wrong = Object.entries(dependencies).filter(([name, wanted]) => {
      const path = join(root, 'node_modules', name, 'package.json');
      return !existsSync(path) || (JSON.parse(readFileSync(path, 'utf8')) as { version: string }).version !== wanted;
    });
    if (wrong.length === 0) return { state: 'ok', detail: `${Object.keys(dependencies).length} as the lock file says` };
    const names = wrong.map(([name]) => name).join(', ');
    return { state: 'fault', detail: `missing or of another version: ${names}`, fix: 'npm install' };
  });
}

export function checkWorkerd(): Promise<Finding> {
  return finding('workerd', async () => {
    const binary = (require('workerd') as { default: string }).default;
    const { stdout } = await promisify(execFile)(binary, ['--version'], { timeout: 10_000 });
    return { state: 'ok', detail: stdout.trim() };
  });
}

export function checkSandbox(config: Config): Promise<Finding> {
  return finding('sandbox', async () => {
    const sandbox = await detectSandbox(config.runtime.sandbox);
    const detail = `${sandbox.level}: ${sandbox.detail}`;
    if (sandbox.level === 'none') return { state: 'fault', detail, fix: 'set runtime.sandbox to auto' };
    const attempts = await tryToBreak(sandbox);
    const lines = attemptLines(attempts);
    if (attempts.some(({ contained }) => !contained)) {
      return { state: 'fault', detail, lines, fix: 'do not run the code of others here' };
    }
    const tried = `${detail}; ${attempts.length} attempts to break out failed:`;
    const fixes = [
      ...(sandbox.level === 'bwrap' ? [] : ['apt-get install bubblewrap']),
      ...(lacksUsers() ? ['map 65,536 user ids into the container (/etc/subuid and /etc/subgid)'] : []),
    ];
    if (fixes.length === 0) return { state: 'ok', detail: tried, lines };
    return { state: 'warning', detail: tried, lines, fix: fixes.join('; ') };
  });
}

/** One line for each thing that was tried, and by which kinds of process; what got through comes first. */
function attemptLines(attempts: Attempt[]): string[] {
  const groups = new Map<string, Attempt[]>();
  for (const one of attempts) {
    const key = `${one.contained} ${one.attempt}`;
    groups.set(key, [...(groups.get(key) ?? []), one]);
  }
  return [...groups.values()]
    .sort(([a], [b]) => Number(a?.contained) - Number(b?.contained))
    .map((group) => {
      const [first] = group;
      const who = group.map(({ as }) => as).join(' and ');
      const outcome = first?.contained ? 'contained' : 'GOT THROUGH';
      return `${outcome}: ${first?.attempt} (${who}: ${first?.detail})`;
    });
}

/** Programs that help; each missing one with what it is for. */
export function checkPrograms(): Promise<Finding> {
  return finding('programs', async () => {
    const missing = systemPackages.filter((one) => one.for === 'run' && !isOnPath(one.program));
    if (missing.length === 0) return { state: 'ok', detail: 'all that help are there' };
    const sudo = process.getuid?.() === 0 ? '' : 'sudo ';
    return {
      state: 'warning',
      detail: missing.map(({ program, why }) => `${program} is missing: ${why}`).join('; '),
      fix: `${sudo}apt-get install -y ${missing.map(({ debian }) => debian).join(' ')}, or turnpike doctor --install-system`,
    };
  });
}

export function checkDataFolder(folder: string): Promise<Finding> {
  return finding('data folder', async () => {
    const place = existsSync(folder) ? folder : dirname(folder);
    try {
      await access(place, constants.W_OK);
    } catch {
      return { state: 'fault', detail: `${place} cannot be written`, fix: 'give another folder with --data' };
    }
    const { bavail, bsize } = await statfs(place);
    const free = bavail * bsize;
    const detail = `${folder}, ${(free / 1e9).toFixed(1)} GB free`;
    return free < LOW_DISK_BYTES
      ? { state: 'warning', detail, fix: 'make room: less than 1 GB is left' }
      : { state: 'ok', detail };
  });
}

/** Whether the embedded chain can run here, and whether others on the machine could reach it. */
export function checkLocalChain(): Promise<Finding> {
  return finding('local chain', async () => {
    const { stdout } = await promisify(execFile)(anvilBinary(), ['--version'], { timeout: 10_000 });
    const version = stdout.split('\n')[0]?.trim() ?? '';
    if (findConfinement().portHidden) return { state: 'ok', detail: version };
    return {
      state: 'warning',
      detail: `${version}; other users of this machine can reach its port and change test balances`,
      fix: 'allow user namespaces, or run as root',
    };
  });
}

function isOnPath(program: string): boolean {
  return (process.env.PATH ?? '').split(delimiter).some((folder) => {
    try {
      accessSync(join(folder, program), constants.X_OK);
      return true;
    } catch {
      return false;
    }
  });
}

/** What hears speech here. A host that runs is asked nothing: `/speech/healthz` says what it uses. */
export function checkSpeech({ speech, builtinTenants }: Config, dataFolder: string): Promise<Finding> {
  return finding('speech', async () => {
    const elsewhere = Object.keys(builtinTenants.secrets.speech ?? {}).find((name) => SPEECH_ELSEWHERE.test(name));
    if (elsewhere !== undefined) return { state: 'ok', detail: `another server (${elsewhere})` };
    const { ModelShelf } = await import('../../../builtin-tenants/speech/models/shelf.ts');
    const model = speech.listenModel || new ModelShelf(dataFolder).inUse();
    if (model !== undefined && speech.listenEngine !== 'pocketsphinx') return { state: 'ok', detail: basename(model) };
    const fix = 'turnpike speech install parakeet-v3, or another of turnpike speech models';
    const { findPocketsphinx } = await import('../../../builtin-tenants/speech/engine/listen/pocketsphinx.ts');
    const found = await findPocketsphinx(speech.listenProgram).catch(() => undefined);
    const detail = found === undefined ? 'nothing transcribes' : 'only pocketsphinx, which mishears people';
    return { state: 'warning', detail, fix };
  });
}
