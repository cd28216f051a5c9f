/** The engine process and the one who started it. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, it } from 'vitest';

const ENTRY = fileURLToPath(new URL('../../builtin-tenants/speech/engine/main.ts', import.meta.url));

it('ends with whoever started it, also while it loads its voices', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'speech-'));
  const socket = join(folder, 'speech-engine.sock');
  const child = spawn(process.execPath, [ENTRY], { stdio: ['pipe', 'pipe', 'inherit'], env: {} });
  try {
    // as when the host is killed right after its start
    child.stdin.end(`${JSON.stringify({ socket, spool: join(folder, 'spool') })}\n`);
    const ended = once(child, 'exit').then(([code]) => code);
    expect(await Promise.race([ended, new Promise((resolve) => setTimeout(resolve, 120_000, 'runs on'))])).toBe(0);
    expect(existsSync(socket)).toBe(false);
  } finally {
    child.kill('SIGKILL');
    await rm(folder, { recursive: true, force: true });
  }
});
