/** Programs of the speech engine that are ended at any moment of their start leave nothing behind. */
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { afterAll, expect, it } from 'vitest';
import { runChild } from '../../../builtin-tenants/speech/engine/child.ts';
import { openConfinement } from '../../../builtin-tenants/speech/engine/confine.ts';

const STARTS = 150;
/** A start takes some milliseconds. */
const LATEST_MS = 12;

const folder = mkdtempSync(path.join(tmpdir(), 'speech-child-'));
const { name, confine } = await openConfinement();
afterAll(() => rmSync(folder, { recursive: true }));

const left = (): string[] =>
  readdirSync('/proc').filter((pid) => {
    try {
      return /^\d+$/.test(pid) && readFileSync(`/proc/${pid}/cmdline`, 'latin1').includes(folder);
    } catch {
      return false;
    }
  });

it.skipIf(name === 'none')(
  'a confined program that is aborted while it starts is gone, and all of its sandbox',
  async () => {
    for (let i = 0; i < STARTS; i += 6) {
      await Promise.all(
        Array.from({ length: 6 }, async (_, at) => {
          const abort = new AbortController();
          const running = runChild({
            ...confine({ program: '/usr/bin/sleep', args: ['600'] }, folder),
            cwd: folder,
            signal: abort.signal,
            timeoutMs: 600_000,
          });
          running.catch(() => undefined);
          await delay(((i + at) / STARTS) * LATEST_MS);
          abort.abort(new Error('the caller left'));
          await expect(running).rejects.toThrow('the caller left');
        }),
      );
    }
    await expect.poll(left).toEqual([]);
  },
);
