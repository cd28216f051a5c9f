/** A backup of a host by the command, and another host on what comes back. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { expect } from 'vitest';
import { startHost, type TestHost } from './host.ts';
import { turnpike } from './turnpike-here.ts';

/** @param look is given a host that runs on the restored data */
export async function withRestored(host: TestHost, look: (restored: TestHost) => Promise<void>): Promise<void> {
  const folder = mkdtempSync(path.join(tmpdir(), 'tp-restored-'));
  const passphrase = path.join(folder, 'passphrase');
  writeFileSync(passphrase, 'a passphrase for a test\n', { mode: 0o600 });
  const command = (...args: string[]) =>
    turnpike(['--json', ...args, '--passphrase-file', passphrase], { cwd: folder });
  try {
    const [target, data] = [path.join(folder, 'backups'), path.join(folder, 'data')];
    expect((await command('--data', host.data, 'backup', target)).stderr).toBe('');
    expect((await command('--data', data, 'restore', target)).stderr).toBe('');
    const restored = await startHost({ data, flags: { 'log-level': 'error' } });
    await look(restored).finally(() => restored.stop());
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}
