/** Starts a facilitator of x402's own packages (`facilitator.ts`) in a process of its own, and sets its faults. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import type { Fault, Settings } from './facilitator.ts';

const PROGRAM = path.join(path.dirname(fileURLToPath(import.meta.url)), 'facilitator.ts');

export interface Facilitator {
  child: ChildProcess;
  url: string;
  fault(path: Fault['path'], kind: string): Promise<void>;
  /** What it was asked since this was called last. */
  asked(): Promise<{ path: string; headers: Record<string, string>; body: Record<string, never> }[]>;
}

export async function startFacilitator(settings: Settings): Promise<Facilitator> {
  const child = spawn(process.execPath, [PROGRAM], {
    env: { ...process.env, FACILITATOR: JSON.stringify(settings) },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const [port] = (await once(createInterface(child.stdout), 'line')) as [string];
  const url = `http://127.0.0.1:${port}`;
  return {
    child,
    url,
    async fault(path, kind) {
      await fetch(`${url}/fault`, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify({ path, kind } satisfies Fault),
      });
    },
    asked: async () => (await (await fetch(`${url}/asked`)).json()) as never,
  };
}
