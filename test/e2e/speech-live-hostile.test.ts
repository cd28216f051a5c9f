/**
 * Hostile audio and hostile callers of live streams, before the engine with the test's model: what is no audio ends with
 * Deepgram's code and nothing heard, and what is sent is bounded in memory, in processes and in what is answered.
 */
import { spawnSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { gzipSync } from 'node:zlib';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import WebSocket from 'ws';
import { commandOf, privateBytes, processTree } from '../bench/processes.ts';
import { type RunningEngine, startEngine } from '../speech/harness/programs.ts';
import { requestSocket } from '../speech/harness/socket.ts';
import { toneWav } from '../speech/harness/sound.ts';

const MODEL = fileURLToPath(new URL('../speech/model/zipformer-ctc-machine-voices', import.meta.url));
const RAW = 'encoding=linear16&sample_rate=16000';
const MB = 1024 * 1024;
const MOST_GROWTH = 120 * MB;

let folder: string;
let engine: RunningEngine;
let idle: number;

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), 'live-hostile-'));
  engine = await startEngine({ listen: { model: MODEL } });
  await end(await open(RAW, 'first'), [toneWav(1).subarray(44)]);
  idle = privateBytes([engine.pid]);
});

afterAll(async () => {
  await engine?.stop();
  rmSync(folder, { recursive: true, force: true });
});

interface Line {
  heardMs: number;
  message?: { type: string; from_finalize?: boolean };
  end?: { code: number; reason: string };
}

interface Stream {
  socket: WebSocket;
  lines: Line[];
}

async function open(query: string, payer: string): Promise<Stream> {
  const all = `${query}&endpointing=300&payer=${payer}&${query.includes('max_billable') ? '' : 'max_billable_ms=60000'}`;
  const socket = new WebSocket(`ws+unix://${engine.socket}:/live?${all}`);
  const lines: Line[] = [];
  socket.on('message', (data) => lines.push(JSON.parse(String(data)) as Line));
  await new Promise((resolve, reject) => {
    socket.once('open', resolve);
    socket.once('error', () => {});
    socket.once('unexpected-response', (_request, { statusCode }) => reject(new Error(String(statusCode))));
  });
  return { socket, lines };
}

/** Sends all of it, and waits for the stream's own end. */
async function end({ socket, lines }: Stream, audio: Uint8Array[]): Promise<Line> {
  const closed = new Promise((resolve) => socket.once('close', resolve));
  for (const piece of audio) socket.send(piece);
  socket.send('{"type":"CloseStream"}');
  await closed;
  return lines.at(-1) ?? { heardMs: -1 };
}

function make(...args: string[]): Buffer {
  const file = join(folder, args.at(-1) ?? '');
  const { status, stderr } = spawnSync('ffmpeg', ['-v', 'error', '-y', '-f', 'lavfi', ...args.slice(0, -1), file]);
  if (status !== 0) throw new Error(String(stderr));
  return readFileSync(file);
}

const decoders = () => processTree([engine.pid]).filter((pid) => commandOf(pid).includes('ffmpeg'));
const places = async () => {
  const { json } = await requestSocket(engine.socket, 'GET', '/health');
  return (json as { listen: { live: object } }).listen.live;
};
const tone = (...args: string[]) => make('-i', 'sine=r=16000:d=2', ...args);
const lying = () => {
  const wav = Buffer.from(toneWav(1));
  wav.writeUInt32LE(0xffffffff, 24);
  wav.writeUInt16LE(0xffff, 22);
  return wav;
};

describe('what is no audio', () => {
  const HOSTILE: Record<string, () => Buffer> = {
    noise: () => randomBytes(50_000),
    'a playlist': () => Buffer.from(`#EXTM3U\n#EXTINF:10,\nfile:///etc/passwd\n${'#'.repeat(100)}`),
    'a list of files': () => Buffer.from(`ffconcat version 1.0\nfile 'file:///etc/passwd'\n${'#'.repeat(100)}`),
    'a script': () => Buffer.from(`#!/bin/sh\n${'exit\n'.repeat(100)}`),
    'an archive': () => gzipSync(randomBytes(5000)),
    'too little to tell': () => Buffer.from('RIFF'),
    'MP3 that is noise': () => Buffer.concat([Buffer.from([0xff, 0xfb, 0x90, 0x00]), randomBytes(50_000)]),
    'Ogg that is noise': () => Buffer.concat([Buffer.from('OggS'), randomBytes(50_000)]),
    'FLAC that is noise': () => Buffer.concat([Buffer.from('fLaC'), randomBytes(50_000)]),
    'WebM that is noise': () => Buffer.concat([Buffer.from([0x1a, 0x45, 0xdf, 0xa3]), randomBytes(50_000)]),
    'FLAC without its header': () => tone('whole.flac').subarray(60),
    'WAV whose header lies': lying,
    'MP4, which is read from its end': () => tone('whole.m4a'),
    'a film without sound': () => make('-i', 'color=d=1:s=64x64', 'silent.webm'),
    'a picture of 9 MB before the sound': () =>
      Buffer.concat([Buffer.from('ID3\u0003\0\0\u0005\u0000\u0000\u0000', 'latin1'), Buffer.alloc(9 * MB)]),
  };

  it.each(Object.keys(HOSTILE))('%s', async (name) => {
    const bytes = HOSTILE[name]?.() ?? Buffer.alloc(0);
    const pieces = Array.from({ length: Math.ceil(bytes.length / 100_000) }, (_, at) =>
      bytes.subarray(at * 100_000, (at + 1) * 100_000),
    );
    const last = await end(await open('', name.replaceAll(' ', '-')), pieces);
    expect(last).toMatchObject({ heardMs: 0, end: { code: 1008, reason: expect.stringMatching(/^DATA-0000: /) } });
  });

  it('is refused before it is looked at when it came three times', async () => {
    for (let time = 0; time < 3; time++) await end(await open('', 'again'), [randomBytes(4000)]);
    await expect(open('', 'again')).rejects.toThrow('429');
    await expect(open(RAW, 'again')).rejects.toThrow('429');
    // others are not held up
    expect(await end(await open(RAW, 'other'), [new Uint8Array(32_000)])).toMatchObject({ heardMs: 1000 });
  });

  it('is refused where more channels and samples are announced than are taken', async () => {
    await expect(open('encoding=linear16&sample_rate=192000&channels=8', 'wide')).rejects.toThrow('413');
  });
});

describe('more than is paid for', () => {
  it('is not decoded: an hour of silence in a small file', async () => {
    const hour = make('-i', 'anullsrc=r=8000:cl=mono', '-t', '3600', 'hour.flac');
    expect(hour.length).toBeLessThan(MB);
    const { socket, lines } = await open('max_billable_ms=10000', 'bomb');
    socket.send(hour);
    await expect.poll(() => lines.at(-1)?.end).toBeDefined();
    // a goodbye that nobody reads would hold the place for half a minute
    await expect.poll(places).toMatchObject({ running: 0 });
    expect(lines.at(-1)).toMatchObject({
      heardMs: 10_000,
      end: { code: 1000, reason: expect.stringMatching(/^PAYMENT-0001/) },
    });
  });

  it('is not lost: audio that is sent at once is heard to its end', async () => {
    const minutes = make('-i', 'sine=r=16000:d=180', 'minutes.ogg');
    const last = await end(await open('max_billable_ms=200000', 'quick'), [minutes]);
    expect(last.end?.code).toBe(1000);
    expect(Math.abs(last.heardMs - 180_000)).toBeLessThan(500);
  });
});

describe('floods', () => {
  it('of small messages take little memory, and come through', async () => {
    const { socket, lines } = await open(RAW, 'flood');
    const closed = new Promise((resolve) => socket.once('close', resolve));
    let most = 0;
    const sampling = setInterval(() => {
      most = Math.max(most, privateBytes([engine.pid]) - idle);
    }, 50);
    const one = Buffer.alloc(2);
    for (let at = 0; at < 200_000; at++) socket.send(one);
    socket.send('{"type":"CloseStream"}');
    await closed;
    clearInterval(sampling);
    expect(lines.at(-1)).toMatchObject({ heardMs: 12_500, end: { code: 1000 } });
    expect(most).toBeLessThan(MOST_GROWTH);
  });

  it('of Finalize are answered once for a tenth of a second of audio', async () => {
    const { socket, lines } = await open(RAW, 'finalize');
    const closed = new Promise((resolve) => socket.once('close', resolve));
    for (let at = 0; at < 5000; at++) {
      if (at % 1000 === 0) socket.send(Buffer.alloc(3200));
      socket.send('{"type":"Finalize"}');
    }
    socket.send('{"type":"CloseStream"}');
    await closed;
    expect(lines.filter(({ message }) => message?.from_finalize).length).toBe(5);
  });

  it('of control messages that nobody needs end nothing else', async () => {
    const { socket } = await open(RAW, 'keep');
    for (let at = 0; at < 50_000; at++) socket.send(`{"type":"KeepAlive","x":"${'é'.repeat(20)}"}`);
    expect(await end({ socket, lines: [] }, [new Uint8Array(32_000)])).toBeDefined();
  });
});

describe('whoever vanishes', () => {
  it('takes the decoder along, whether it waits for audio or works', async () => {
    const sound = make('-i', 'sine=r=16000:d=60', 'minute.webm');
    for (const part of [sound.subarray(0, 2000), sound]) {
      const { socket } = await open('', 'gone');
      socket.send(part);
      await expect.poll(decoders, { interval: 10 }).not.toEqual([]);
      socket.terminate();
      await expect.poll(decoders).toEqual([]);
    }
  });

  it('fails a stream whose decoder is killed', async () => {
    const { socket, lines } = await open('', 'killed');
    const closed = new Promise((resolve) => socket.once('close', resolve));
    socket.send(tone('two.webm'));
    await expect.poll(() => lines.at(-1)?.heardMs ?? 0).toBeGreaterThan(500);
    process.kill(decoders()[0] ?? 0, 'SIGKILL');
    socket.send('{"type":"CloseStream"}');
    await closed;
    expect(lines.at(-1)?.end).toMatchObject({ code: 1008 });
  });
});

it('and the engine hears on, with no process left and no memory lost', async () => {
  expect(await end(await open(RAW, 'last'), [new Uint8Array(64_000)])).toMatchObject({ heardMs: 2000 });
  expect(decoders()).toEqual([]);
  await expect.poll(() => privateBytes([engine.pid]) - idle).toBeLessThan(MOST_GROWTH);
});
