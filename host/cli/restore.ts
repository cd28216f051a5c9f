/** `turnpike restore`: brings a backup back into an empty data folder. */
import { resolve } from 'node:path';
import { Command } from 'commander';
import type { RestoreSummary } from '../backup/index.ts';
import { fileSize } from '../shared/file-size.ts';
import { type CommandDeps, withSession } from './session.ts';

interface RestoreOptions {
  passphraseFile?: string;
}

export function restoreCommand(deps?: CommandDeps): Command {
  return new Command('restore')
    .description('operator: bring a backup back into an empty data folder')
    .argument('<source>', 'folder of backups, folder of one backup, or s3://bucket/prefix')
    .argument('[id]', 'which one, such as 2026-01-31T04-00-00Z; default: the newest')
    .option('--passphrase-file <file>', 'opens the keys of the backup; default: backup.passphraseFile')
    .action(
      withSession(deps, async (session, source: string, id: string | undefined, options: RestoreOptions) => {
        const [{ runRestore }, { loadConfig }] = await Promise.all([
          import('../backup/index.ts'),
          import('../supervisor/configuration.ts'),
        ]);
        const { cwd, env } = session.terminal;
        const config = loadConfig({ folder: cwd, env, flags: [] });
        const restored = await runRestore({
          config,
          source: source.startsWith('s3://') ? source : resolve(cwd, source),
          id,
          dataFolder: resolve(cwd, session.options.data ?? config.data),
          passphraseFile: options.passphraseFile === undefined ? undefined : resolve(cwd, options.passphraseFile),
        });
        session.printer.result(restored, summary(restored));
      }),
    );
}

function summary({ id, dataFolder, files, bytes, finishedAt }: RestoreSummary): string {
  return [
    `backup    ${id}`,
    `restored  ${dataFolder}: ${files} files, ${fileSize(bytes)}`,
    `as of     ${finishedAt}`,
    'next      start the host on that folder',
  ].join('\n');
}
