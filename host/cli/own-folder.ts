/** Commands that work on a data folder themselves, where no host runs on it. */
import { mkdirSync } from 'node:fs';
import { resolve } from 'node:path';
import type { Config } from '../shared/config.ts';
import type { Session } from './session.ts';
import { Failure } from './terminal/failure.ts';
import { hostFolder } from './wallet/local-host.ts';

/**
 * Nobody may start a host on the folder meanwhile.
 * @throws Failure usage where there is none
 */
export async function withDataFolder<T>(
  session: Session,
  work: (config: Config, dataFolder: string) => Promise<T>,
): Promise<T> {
  return locked(session, ownFolder(session), work);
}

/** @throws Failure usage where no host has worked in the folders of this session */
export function ownFolder({ dataFolders }: Session): string {
  const folder = hostFolder(dataFolders);
  if (folder !== undefined) return folder;
  throw new Failure(
    'usage',
    `There is no host's data in ${dataFolders.join(' or ')}: start the host once, or name its folder with --data.`,
  );
}

/**
 * On a folder of its own, which is made.
 * @throws Failure usage where none is named
 */
export async function withNewDataFolder<T>(
  session: Session,
  work: (config: Config, dataFolder: string) => Promise<T>,
): Promise<T> {
  if (session.options.data === undefined) throw new Failure('usage', 'Name the new data folder with --data.');
  const dataFolder = resolve(session.terminal.cwd, session.options.data);
  mkdirSync(dataFolder, { recursive: true, mode: 0o700 });
  return locked(session, dataFolder, work);
}

/** The settings that a host here would have. */
export async function ownConfig(session: Session): Promise<Config> {
  const { loadConfig } = await import('../supervisor/configuration.ts');
  const { cwd, env } = session.terminal;
  return loadConfig({ folder: cwd, env, flags: [] });
}

async function locked<T>(
  session: Session,
  dataFolder: string,
  work: (config: Config, dataFolder: string) => Promise<T>,
): Promise<T> {
  const [config, { FolderLock }, { usingDataFolder }] = await Promise.all([
    ownConfig(session),
    import('../supervisor/folder-lock.ts'),
    import('../supervisor/start-failures.ts'),
  ]);
  const lock = usingDataFolder(dataFolder, () => new FolderLock(dataFolder));
  try {
    return await work(config, dataFolder);
  } finally {
    lock.release();
  }
}
