/** The program: `node host/main.ts [--setting value ...]` starts the host and serves until SIGTERM or SIGINT. */
import { readFileSync } from 'node:fs';
import { enableCompileCache, flushCompileCache } from 'node:module';
import path from 'node:path';
import pino from 'pino';
import { errorForLog } from './shared/error-for-log.ts';
import { giveMemoryBack } from './shared/idle-memory.ts';
import { usePackedPackages } from './shared/packed-packages.ts';
import { loadConfig } from './supervisor/configuration.ts';
import { FolderLock } from './supervisor/folder-lock.ts';
import { openFolders } from './supervisor/folders.ts';
import { closeInherited } from './supervisor/inherited-descriptors.ts';
import { prefork } from './supervisor/prefork.ts';
import { helpText, startScreen } from './supervisor/screens.ts';
import { explainStart, usingDataFolder } from './supervisor/start-failures.ts';

const STOP_WITHIN_MS = 9_500;

const { version } = JSON.parse(readFileSync(new URL('../package.json', import.meta.url), 'utf8')) as {
  version: string;
};

let dataFolder: string | undefined;

async function main(flags: string[]): Promise<void> {
  if (flags.includes('--help') || flags.includes('-h')) {
    process.stdout.write(helpText());
    return;
  }
  if (flags.includes('--version')) {
    process.stdout.write(`${version}\n`);
    return;
  }
  closeInherited();
  const notice = (text: string) => console.error(`turnpike: ${text}`);
  const origins = new Map<string, string>();
  const config = loadConfig({ folder: process.cwd(), env: process.env, flags, origins, notice });
  const log = pino(
    { level: config.log.level, base: null, serializers: { err: errorForLog } },
    pino.destination({ dest: 2, sync: true }),
  );
  dataFolder = path.resolve(config.data);
  const folders = usingDataFolder(dataFolder, () => openFolders(config.data));
  const lock = usingDataFolder(dataFolder, () => new FolderLock(folders.data));
  cacheCompiledCode(path.join(folders.data, 'cache'));
  prefork(['storage', 'egress', ...Array.from({ length: config.edge.processes }, () => 'edge' as const)]);
  usePackedPackages();
  // Loaded only now: a mistake in the settings should be told at once.
  const { startHost } = await import('./supervisor/host.ts');
  const host = await startHost(config, folders, log, version, origins);
  giveMemoryBack();

  let stopping = false;
  const stop = (signal: NodeJS.Signals) => {
    if (stopping) return;
    stopping = true;
    log.info({ signal }, 'stopping');
    setTimeout(() => {
      log.error('not everything stopped in time');
      process.exit(1);
    }, STOP_WITHIN_MS).unref();
    void host.stop().then(() => {
      lock.release();
      process.exit(0);
    });
  };
  process.on('SIGTERM', stop);
  process.on('SIGINT', stop);
  process.on('unhandledRejection', (error) => log.error({ err: error }, 'unhandled promise rejection'));

  // Whoever reads that it runs may tell it to stop: the flush can take a second on a slow disk.
  await lock.announce({ pid: process.pid, url: host.url, port: host.port, adminPort: host.adminPort });
  process.stdout.write(startScreen(host, folders, version));
  flushCompileCache();
}

/** Halves the time that this process and its children need to load their code, from the second start on. */
function cacheCompiledCode(folder: string): void {
  // The launcher's, or the operator's own.
  if (process.env.NODE_COMPILE_CACHE) return;
  enableCompileCache(folder);
  process.env.NODE_COMPILE_CACHE = folder;
}

try {
  await main(process.argv.slice(2));
} catch (error) {
  const explained = explainStart(error, dataFolder);
  console.error(explained === undefined ? error : `turnpike: ${explained}`);
  process.exit(1);
}
