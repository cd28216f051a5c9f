/** `turnpike backup`: a copy of everything a host keeps; the running host makes it, or this command where none runs. */
import { existsSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { Command } from 'commander';
import type { BackupChoice, BackupOutcome } from '../backup/index.ts';
import { fileSize } from '../shared/file-size.ts';
import { callOperator } from './operator-client.ts';
import { withDataFolder } from './own-folder.ts';
import { type CommandDeps, type Session, withSession } from './session.ts';
import { Failure } from './terminal/failure.ts';

export function backupCommand(deps?: CommandDeps): Command {
  return new Command('backup')
    .description('operator: back up everything this host keeps, while it works')
    .argument('[target]', 'folder, or s3://bucket/prefix; default: backup.target')
    .option('--passphrase-file <file>', 'seals the keys of the backup; default: backup.passphraseFile')
    .addHelpText('after', EXAMPLES)
    .action(
      withSession(deps, async (session, target: string | undefined, options: { passphraseFile?: string }) => {
        const { cwd } = session.terminal;
        const file = options.passphraseFile;
        const choice: BackupChoice = {
          target: target === undefined || target.startsWith('s3://') ? target : resolve(cwd, target),
          passphraseFile: file === undefined ? undefined : resolve(cwd, file),
        };
        const made = (await askHost(session, choice)) ?? (await makeHere(session, choice));
        session.printer.result(made, summary(made));
      }),
    );
}

/** Answers undefined when no host runs on the data folder. */
async function askHost(session: Session, choice: BackupChoice): Promise<BackupOutcome | undefined> {
  try {
    return JSON.parse((await callOperator(session, 'POST', '/backup', choice)).text) as BackupOutcome;
  } catch (error) {
    if (error instanceof Failure && error.exit === 'unreachable') return undefined;
    throw error;
  }
}

async function makeHere(session: Session, choice: BackupChoice): Promise<BackupOutcome> {
  const { runBackup } = await import('../backup/index.ts');
  return withDataFolder(session, (config, dataFolder) => {
    if (!existsSync(join(dataFolder, 'registry.db')))
      throw new Failure(
        'usage',
        `${dataFolder} has no registry.db. Start the host once; if it is a node of a cluster, back up its PostgreSQL and its bucket (config/cluster/README.md).`,
      );
    return runBackup({ ...choice, config, dataFolder, hostVersion: 'offline', live: undefined });
  });
}

function summary({ location, files, bytes, removed, lacks }: BackupOutcome): string {
  const lines = [`backup   ${location}`, `holds    ${files} files, ${fileSize(bytes)}`];
  if (removed.length > 0) lines.push(`removed  ${removed.join(', ')}`);
  lines.push(...lacks.map((what) => `lacks    ${what}`));
  return lines.join('\n');
}

const EXAMPLES = `
Examples:
  $ turnpike backup /var/backups/turnpike
  $ turnpike backup s3://backups/box1
  $ turnpike restore /var/backups/turnpike --data ./data --passphrase-file ./passphrase

Without the passphrase a backup cannot be restored: keep it somewhere else than the backup.`;
