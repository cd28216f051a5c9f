/** The same files behind our edge and behind Caddy's file server. */
import { createHash } from 'node:crypto';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { jsonPut, mppFetch } from '../../e2e/support/callers.ts';
import { freePort } from '../../e2e/support/ports.ts';
import type { Starter } from '../subject.ts';
import { HELLO } from '../workers.ts';
import { installed, startProgram, stopProgram } from './programs.ts';
import { startTurnpike } from './turnpike.ts';

type Contents = Record<string, Buffer>;

export function ourFiles(contents: Contents): Starter {
  return {
    name: 'Turnpike',
    missing: () => undefined,
    async start() {
      const subject = await startTurnpike(HELLO);
      const { host } = subject;
      const owner = mppFetch(host.network, 0);
      const session = await owner(`${host.url}/_admin/session/bench`, { method: 'POST' });
      const headers = { authorization: `Bearer ${((await session.json()) as { token: string }).token}` };
      const files: Record<string, string> = {};
      for (const [name, content] of Object.entries(contents)) {
        const hash = createHash('sha256').update(content).digest('hex');
        files[name] = hash;
        const url = `${host.url}/_admin/bench/assets/${hash}`;
        await fetch(url, { method: 'PUT', body: new Uint8Array(content), headers });
      }
      const update = await owner(`${host.url}/_admin/code/bench`, jsonPut({ assets: { files } }));
      if (!update.ok) throw new Error(`The files were not taken: ${update.status} ${await update.text()}`);
      return subject;
    },
  };
}

export function caddyFiles(contents: Contents): Starter {
  return {
    name: 'Caddy',
    missing: () => installed('caddy'),
    async start() {
      const folder = mkdtempSync(path.join(tmpdir(), 'bench-files-'));
      for (const [name, content] of Object.entries(contents)) writeFileSync(path.join(folder, name), content);
      const port = await freePort();
      const args = ['file-server', '--root', folder, '--listen', `127.0.0.1:${port}`];
      const child = await startProgram('caddy', args, port, { HOME: folder });
      return {
        name: 'Caddy',
        origin: `http://127.0.0.1:${port}`,
        pids: () => [child.pid ?? 0],
        async stop() {
          await stopProgram(child);
          rmSync(folder, { recursive: true, force: true });
        },
      };
    },
  };
}
