/**
 * Entry of a tenant's SQL process, started by the host inside the tenant's sandbox: settings as one JSON line on
 * standard input, `{"event":"listening"}` on standard output when it serves. With a local database it is the supervisor
 * and forks itself as the engine; with a remote one it forwards.
 */
import { readSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import type { SqlSettings } from './settings.ts';

const ENGINE = 'engine';

async function main(): Promise<void> {
  if (process.argv[2] === ENGINE) {
    const { runEngine } = await import('./engine.ts');
    return runEngine();
  }
  const { parseSettings } = await import('./settings.ts');
  const settings = parseSettings(readLine());
  const listening = (): void => {
    process.stdout.write('{"event":"listening"}\n');
  };
  const stop = await serve(settings, listening);
  process.once('SIGTERM', stop);
  if (settings.lifeline) process.stdin.resume().once('end', stop);
}

async function serve(settings: SqlSettings, listening: () => void): Promise<() => void> {
  const log = (event: Record<string, unknown>): void => {
    process.stderr.write(`${JSON.stringify(event)}\n`);
  };
  if (settings.remote !== undefined) {
    const { serveRemote } = await import('./forward.ts');
    return serveRemote(settings, settings.remote, listening);
  }
  const { EngineSupervisor } = await import('./engine-supervisor.ts');
  const supervisor = new EngineSupervisor(settings, { program: fileURLToPath(import.meta.url), argument: ENGINE, log });
  supervisor.listen(listening);
  return () => supervisor.stop();
}

/** Synchronously, and no further than the line: the rest of the stream is the lifeline. */
function readLine(): string {
  const byte = Buffer.alloc(1);
  const bytes: number[] = [];
  for (;;) {
    try {
      if (readSync(0, byte, 0, 1, null) === 0 || byte[0] === 10) return Buffer.from(bytes).toString('utf8');
      bytes.push(byte[0] ?? 0);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'EAGAIN') throw error;
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 1);
    }
  }
}

await main();
