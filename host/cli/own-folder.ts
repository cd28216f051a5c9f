/** Commands that work on a data folder themselves, where no host runs on it. */
import { existsSync } from 'node:fs';
import type { Config } from '../shared/config.ts';
import type { Session } from './session.ts';
import { Failure } from './terminal/failure.ts';

/**
 * Nobody may start a host on the folder meanwhile.
 * @param isHosts whether a folder is that of a host
 * @throws Failure usage where there is none
 */
export async function withDataFolder<T>(
  session: Session,
  isHosts: (folder: string) => boolean,
  work: (config: Config, dataFolder: string) => Promise<T>,
): Promise<T> {
  const [{ loadConfig }, { FolderLock }, { usingDataFolder }] = await Promise.all([
    import('../supervisor/configuration.ts'),
    import('../supervisor/folder-lock.ts'),
    import('../supervisor/start-failures.ts'),
  ]);
  const dataFolder = session.dataFolders.find((folder) => existsSync(folder) && isHosts(folder));
  if (dataFolder === undefined)
    throw new Failure(
      'usage',
      `There is no host's data in ${session.dataFolders.join(' or ')}: name its folder with --data.`,
    );
  const { cwd, env } = session.terminal;
  const config = loadConfig({ folder: cwd, env, flags: [] });
  const lock = usingDataFolder(dataFolder, () => new FolderLock(dataFolder));
  try {
    return await work(config, dataFolder);
  } finally {
    lock.release();
  }
}
