/**
 * Voices of sherpa-onnx, in the layouts of piper and kokoro: its own code, espeak-ng's phonemes and real tensors, with
 * models that make a tone of each phoneme (test/speech/model/voices.py). No published voice was at hand.
 */
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { installFromPath } from '../../builtin-tenants/speech/models/install.ts';
import { ModelShelf } from '../../builtin-tenants/speech/models/shelf.ts';
import { tryVoice } from '../../builtin-tenants/speech/models/trial.ts';
import { commandOf, processTree } from '../bench/processes.ts';
import { type RunningEngine, startEngine } from '../speech/harness/programs.ts';
import { requestSocket } from '../speech/harness/socket.ts';
import { KOKORO, PIPER, PIPER_GERMAN, packVoice } from '../speech/harness/voices.ts';

const TEXT = 'The children played with a ball. Their parents talked.';

let folder: string;
let engine: RunningEngine;

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), 'voices-'));
  const models = [PIPER, PIPER_GERMAN, KOKORO].map((name) => packVoice(name, folder));
  engine = await startEngine({ speak: { models: [...models, join(folder, 'gone')] } });
});

afterAll(async () => {
  await engine?.stop();
  rmSync(folder, { recursive: true, force: true });
});

interface Speech {
  status: number;
  message: string | undefined;
  voice: unknown;
  warnings: string;
  seconds: number;
  /** Of the loudest tone in the first phoneme, Hz. */
  crossings: number;
}

async function speak(asked: object): Promise<Speech> {
  const body = JSON.stringify({ text: TEXT, encoding: 'linear16', container: 'none', sampleRate: 16_000, ...asked });
  const { status, json, bytes, headers } = await requestSocket(engine.socket, 'POST', '/speak', body);
  let crossings = 0;
  for (let at = 2; at < Math.min(1600, bytes.length - 1); at += 2)
    if (bytes.readInt16LE(at) < 0 !== bytes.readInt16LE(at - 2) < 0) crossings += 1;
  return {
    status,
    message: (json as { message?: string } | undefined)?.message,
    voice: headers['x-voice'],
    warnings: decodeURIComponent(String(headers['x-warnings'] ?? '')),
    seconds: bytes.length / 32_000,
    crossings,
  };
}

describe('installed voices', () => {
  it('speak their languages; all others are left to espeak-ng', async () => {
    expect(await speak({})).toMatchObject({ status: 200, voice: PIPER, warnings: '[]' });
    expect(await speak({ model: 'aura-2-viktoria-de' })).toMatchObject({ voice: PIPER_GERMAN });
    expect(await speak({ model: 'aura-2-celeste-es' })).toMatchObject({ voice: expect.stringContaining('es') });
    expect(await speak({ model: 'espeak-ng-en' })).toMatchObject({ voice: expect.stringContaining('en-US') });
    const { json } = await requestSocket(engine.socket, 'GET', '/health');
    expect(json).toMatchObject({
      speak: {
        engines: expect.arrayContaining(['sherpa-onnx']),
        voices: [
          { name: PIPER, languages: ['en-us'] },
          { name: PIPER_GERMAN, languages: ['de-de'] },
          { name: KOKORO, languages: ['en'] },
        ],
      },
    });
  });

  it('are chosen by name, with a speaker, at a speed, in any format', async () => {
    const first = await speak({ model: KOKORO });
    expect(first).toMatchObject({ status: 200, voice: KOKORO, warnings: '[]' });
    const second = await speak({ model: `sherpa-onnx-${KOKORO}:1` });
    expect(second).toMatchObject({ voice: `${KOKORO}:1`, seconds: first.seconds });
    // 300 Hz more in a twentieth of a second
    expect(second.crossings - first.crossings).toBeGreaterThan(20);
    const fast = await speak({ model: KOKORO, speed: 1.5 });
    expect(first.seconds / fast.seconds).toBeCloseTo(1.5, 1);
    expect(await speak({ model: `${KOKORO}:2` })).toMatchObject({
      status: 422,
      message: expect.stringContaining(`${KOKORO}:0 to ${KOKORO}:1`),
    });
    const mp3 = JSON.stringify({ text: TEXT, model: PIPER, bitRate: 32_000 });
    const { status, bytes } = await requestSocket(engine.socket, 'POST', '/speak', mp3);
    expect([status, bytes.readUInt16BE(0) & 0xffe0]).toEqual([200, 0xffe0]);
  });

  it('take whatever they are sent', async () => {
    for (const text of [
      '…',
      '\u0000\u0007 [[_^_]] <speak>',
      '😀'.repeat(700),
      '\u202e日本語 العربية',
      'x'.repeat(1999),
      '-',
    ])
      expect(await speak({ text }), text.slice(0, 9)).toMatchObject({ status: 200 });
  });

  it('come back when their process was killed, and fail what it was working on', async () => {
    await speak({ model: PIPER });
    const running = () => processTree([engine.pid]).filter((pid) => /speak\/sherpa-onnx-process/.test(commandOf(pid)));
    const under = speak({ model: PIPER, text: 'The children played with a ball. '.repeat(50) });
    for (const pid of running()) process.kill(pid, 'SIGKILL');
    await under.catch(() => undefined);
    expect(await speak({ model: PIPER })).toMatchObject({ status: 200, voice: PIPER });
    const pids = running();
    expect(pids).toHaveLength(1);
    await engine.stop();
    await expect.poll(() => pids.filter((pid) => commandOf(pid) !== '')).toEqual([]);
    engine = await startEngine({ speak: { models: [join(folder, KOKORO)] } });
  });
});

describe('a voice that is installed', () => {
  const steps = { signal: new AbortController().signal, step: () => undefined, progress: () => undefined };

  it('is tried, and put before those that are there', async () => {
    const shelf = new ModelShelf(mkdtempSync(join(folder, 'data-')));
    for (const name of [PIPER, KOKORO]) {
      const path = await installFromPath(shelf, join(folder, name), steps);
      expect(await tryVoice(path)).toMatchObject({ sampleRate: 16_000, speakers: 2 });
      await shelf.useVoice(name);
    }
    expect(shelf.voicesInUse()).toEqual([KOKORO, PIPER].map((name) => shelf.pathOf(name)));
    await shelf.drop(KOKORO);
    expect(shelf.voicesInUse()).toEqual([shelf.pathOf(PIPER)]);
    expect(await shelf.list()).toEqual([KOKORO, PIPER]);
  });

  it('and is broken is told by its trial', async () => {
    const broken = join(folder, 'vits-piper-en_US-broken');
    mkdirSync(join(broken, 'espeak-ng-data'), { recursive: true });
    writeFileSync(join(broken, 'tokens.txt'), readFileSync(join(folder, PIPER, 'tokens.txt')));
    writeFileSync(join(broken, 'broken.onnx'), 'x');
    await expect(tryVoice(broken)).rejects.toThrow(/cannot be loaded as vits: \S/);
  });
});
