import { existsSync, mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Command } from 'commander';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { backupCommand } from '../../host/cli/backup.ts';
import { restoreCommand } from '../../host/cli/restore.ts';
import { openRegistry } from '../../host/registry/index.ts';
import { FolderLock } from '../../host/supervisor/folder-lock.ts';
import { type FakeTerminal, fakeTerminal } from './fake-terminal.ts';

let folder: string;
beforeEach(async () => {
  folder = mkdtempSync(join(tmpdir(), 'cli-backup-'));
  mkdirSync(join(folder, 'data'));
  const registry = await openRegistry(join(folder, 'made.db'));
  await registry.copyTo(join(folder, 'data/registry.db'));
  registry.close();
  writeFileSync(join(folder, 'data/secrets.key'), 'secret');
  writeFileSync(join(folder, 'passphrase'), 'a long enough passphrase\n');
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

const turnpike = (...args: string[]) => turnpikeIn({ cwd: folder }, ...args);

async function turnpikeIn(where: Parameters<typeof fakeTerminal>[0], ...args: string[]): Promise<FakeTerminal> {
  const terminal = fakeTerminal(where);
  const deps = { terminal, fetch };
  const program = new Command().option('--json').option('--data <folder>').exitOverride();
  program.addCommand(backupCommand(deps)).addCommand(restoreCommand(deps));
  await program.parseAsync(args, { from: 'user' });
  return terminal;
}

describe('turnpike backup and restore without a running host', () => {
  it('make a backup of the folder and bring it back', async () => {
    const made = await turnpike('--json', '--data', 'data', 'backup', 'kept', '--passphrase-file', 'passphrase');
    const { location, files } = JSON.parse(made.stdout);
    expect(location).toMatch(new RegExp(`^${join(folder, 'kept')}/\\d{4}-`));
    expect(files).toBe(2);
    await expect(turnpike('--data', 'elsewhere', 'restore', 'kpet', '--passphrase-file', 'passphrase')).rejects.toThrow(
      'Name the folder that turnpike backup wrote to',
    );
    const restored = await turnpike('--data', 'elsewhere', 'restore', 'kept', '--passphrase-file', 'passphrase');
    expect(restored.stdout).toContain(`restored  ${join(folder, 'elsewhere')}: 2 files`);
    expect(readdirSync(join(folder, 'elsewhere')).sort()).toEqual(['registry.db', 'secrets.key']);
  });

  it('say what is missing', async () => {
    await expect(turnpike('--data', 'data', 'backup', 'kept')).rejects.toThrow('passphrase');
    await expect(turnpike('--data', 'nowhere', 'backup', 'kept')).rejects.toThrow("There is no host's data");
    await expect(turnpike('--data', 'data', 'restore', 'kept', '--passphrase-file', 'passphrase')).rejects.toThrow();
    mkdirSync(join(folder, 'node'));
    writeFileSync(join(folder, 'node/host.json'), '{}');
    await expect(turnpike('--data', 'node', 'backup', 'kept', '--passphrase-file', 'passphrase')).rejects.toThrow(
      'has no registry.db',
    );
    expect(existsSync(join(folder, 'kept'))).toBe(false);
  });

  it('take the first folder of a host, and not one further down on which a host runs', async () => {
    const elsewhere = join(folder, 'elsewhere');
    mkdirSync(join(elsewhere, 'data/run'), { recursive: true });
    const asked: string[] = [];
    const running = createServer(({ url }, answer) => {
      asked.push(url ?? '');
      answer.end('{}');
    });
    await new Promise<void>((resolve) => running.listen(join(elsewhere, 'data/run/operator.sock'), resolve));
    try {
      writeFileSync(join(elsewhere, 'data/host.json'), '{}');
      const made = await turnpikeIn(
        { cwd: elsewhere, env: { TURNPIKE_DATA: join(folder, 'data') } },
        ...['--json', 'backup', join(folder, 'kept'), '--passphrase-file', join(folder, 'passphrase')],
      );
      expect(JSON.parse(made.stdout)).toMatchObject({ files: 2 });
      expect(asked).toEqual([]);
    } finally {
      await new Promise((resolve) => running.close(resolve));
    }
  });

  it('never run beside a host whose operator socket is gone', async () => {
    const lock = new FolderLock(join(folder, 'data'));
    try {
      await expect(
        turnpike('--data', 'data', 'backup', 'kept', '--passphrase-file', 'passphrase'),
      ).rejects.toMatchObject({
        code: 'conflict',
      });
    } finally {
      lock.release();
    }
  });
});
