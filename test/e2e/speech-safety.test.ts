/** What callers may point the speech tenant to, and what becomes of hostile audio: refused in time, never charged. */
import { spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { createServer, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type RunningEngine, type RunningTenant, startEngine, startTenant } from '../speech/harness/programs.ts';
import { toneWav } from '../speech/harness/sound.ts';
import { expectTime } from '../times.ts';

const MAX_BYTES = 1024 * 1024;
const FETCH_MS = 2000;

let engine: RunningEngine;
let tenant: RunningTenant;
let files: Server;
let base: string;
/** Requests that reached something that no caller may reach. */
let trespasses = 0;

const CAFE = 'The café was warm and full of people, and everybody was happy about it.';
const LATIN_1 = Buffer.from(CAFE, 'latin1');

/** Path -> what the server does. */
const PAGES: Record<string, (response: ServerResponse) => void> = {
  '/tone.wav': (response) => audio(response, toneWav(1)),
  '/hop/1': (response) => redirect(response, '/tone.wav'),
  '/hop/2': (response) => redirect(response, '/hop/1'),
  '/hop/3': (response) => redirect(response, '/hop/2'),
  '/hop/4': (response) => redirect(response, '/hop/3'),
  '/to-engine': (response) => redirect(response, 'http://speech-engine.internal/health'),
  '/to-file': (response) => redirect(response, 'file:///etc/passwd'),
  '/nowhere': (response) => response.writeHead(302).end(),
  '/unclosed.html': (response) =>
    response.writeHead(200, { 'content-type': 'text/html' }).end(`The park was warm. ${'<'.repeat(64_000)}`),
  '/unended.html': (response) =>
    response.writeHead(200, { 'content-type': 'text/html' }).end(`The park was warm. ${'<head'.repeat(40_000)}`),
  '/latin-1.txt': (response) =>
    response.writeHead(200, { 'content-type': 'text/plain; charset=ISO-8859-1' }).end(LATIN_1),
  '/unknown.txt': (response) => response.writeHead(200, { 'content-type': 'text/plain; charset=klingon' }).end(LATIN_1),
  '/gone': (response) => response.writeHead(410).end(),
  '/page': (response) => response.writeHead(200, { 'content-type': 'text/html' }).end('<html>'),
  '/list.m3u8': (response) =>
    response.writeHead(200, { 'content-type': 'application/vnd.apple.mpegurl' }).end(playlist()),
  '/playlist-as-audio': (response) => audio(response, Buffer.from(playlist())),
  '/ffconcat-as-audio': (response) => audio(response, Buffer.from("ffconcat version 1.0\nfile 'file:///etc/passwd'\n")),
  '/broken-header.wav': (response) =>
    audio(response, Buffer.concat([toneWav(1).subarray(0, 20), Buffer.alloc(2000, 0xff)])),
  '/lying-header.wav': (response) => {
    const wav = Buffer.from(toneWav(1));
    wav.writeUInt32LE(0xffffffff, 40);
    wav.writeUInt32LE(0xffffffff, 24);
    audio(response, wav);
  },
  '/noise.mp3': (response) => audio(response, Buffer.alloc(5000, 0xfb).fill(0xff, 0, 1)),
  '/empty': (response) => audio(response, Buffer.alloc(0)),
  '/declared-large': (response) =>
    response.writeHead(200, { 'content-type': 'audio/wav', 'content-length': MAX_BYTES + 1 }).write('RIFF'),
  '/endless': (response) => {
    response.writeHead(200, { 'content-type': 'audio/wav' });
    response.write(toneWav(1).subarray(0, 44));
    const block = Buffer.alloc(64 * 1024);
    const more = () => {
      while (!response.destroyed && response.write(block));
    };
    response.on('drain', more);
    more();
  },
  '/drip': (response) => {
    response.writeHead(200, { 'content-type': 'audio/wav' });
    const timer = setInterval(() => response.write('R'), 50);
    response.once('close', () => clearInterval(timer));
  },
  '/silent': () => {},
  '/gzip-bomb': (response) =>
    response
      .writeHead(200, { 'content-type': 'audio/wav', 'content-encoding': 'gzip' })
      .end(gzipSync(Buffer.alloc(20 * MAX_BYTES))),
  '/half': (response) => {
    response.writeHead(200, { 'content-type': 'audio/wav', 'content-length': 32_044 });
    response.write(toneWav(1).subarray(0, 10_000), () => response.destroy());
  },
};

function playlist(): string {
  return `#EXTM3U\n#EXT-X-TARGETDURATION:10\n#EXTINF:10,\n${base}/trespass\n#EXTINF:10,\nfile:///etc/passwd\n#EXT-X-ENDLIST\n`;
}

function audio(response: ServerResponse, bytes: Uint8Array): void {
  response.writeHead(200, { 'content-type': 'audio/mpeg', 'content-length': bytes.length }).end(bytes);
}

function redirect(response: ServerResponse, location: string): void {
  response.writeHead(302, { location }).end();
}

async function listen(url: string): Promise<{ status: number; charge: string | null; code: unknown; ms: number }> {
  const started = performance.now();
  const response = await fetch(`${tenant.url}/v1/listen`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ url }),
  });
  const body = (await response.json()) as Record<string, unknown>;
  const charge = response.headers.get('x-charge');
  return { status: response.status, charge, code: body.err_code, ms: performance.now() - started };
}

beforeAll(async () => {
  engine = await startEngine({ limits: { audioSeconds: 30 } });
  tenant = await startTenant(engine, { MAX_AUDIO_BYTES: String(MAX_BYTES), FETCH_TIMEOUT_MS: String(FETCH_MS) });
  files = createServer((request, response) => {
    const page = PAGES[request.url ?? ''];
    if (request.url === '/trespass') trespasses++;
    if (page === undefined) response.writeHead(404).end();
    else page(response);
  }).listen(0, '127.0.0.1');
  await once(files, 'listening');
  base = `http://127.0.0.1:${(files.address() as AddressInfo).port}`;
});

afterAll(async () => {
  files?.closeAllConnections();
  files?.close();
  await tenant?.stop();
  await engine?.stop();
});

describe('URLs', () => {
  it('follows three redirects', async () => {
    expect(await listen(`${base}/hop/3`)).toMatchObject({ status: 200, charge: '0.0001' });
  });

  it.each([
    ['a fourth redirect', () => `${base}/hop/4`],
    ['a redirect to the engine itself', () => `${base}/to-engine`],
    ['a redirect to a file', () => `${base}/to-file`],
    ['a redirect without an address', () => `${base}/nowhere`],
    ['the engine itself', () => 'http://speech-engine.internal/health'],
    ['the engine itself, spelled with a dot', () => 'http://speech-engine.internal./health'],
    ['a file', () => 'file:///etc/passwd'],
    ['credentials', () => `${base.replace('//', '//user:password@')}/tone.wav`],
    ['an answer that is an error', () => `${base}/gone`],
    ['a page', () => `${base}/page`],
    ['a playlist', () => `${base}/list.m3u8`],
    ['a declared length over the limit', () => `${base}/declared-large`],
    ['an endless stream', () => `${base}/endless`],
    ['a stream that drips', () => `${base}/drip`],
    ['a server that says nothing', () => `${base}/silent`],
    ['a compressed bomb', () => `${base}/gzip-bomb`],
    ['a body that breaks off', () => `${base}/half`],
  ])('refuses %s, uncharged', async (_what, url) => {
    const outcome = await listen(url());
    expect(outcome).toMatchObject({ status: 400, charge: null, code: 'REMOTE_CONTENT_ERROR' });
    expectTime('the refusal', outcome.ms, FETCH_MS + 5000);
  });

  it('refuses to call back the engine, before any work', async () => {
    const callback = encodeURIComponent('http://speech-engine.internal/audio');
    const response = await fetch(`${tenant.url}/v1/read?summarize=true&callback=${callback}`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: '{"text":"Some text."}',
    });
    expect(response.status).toBe(400);
  });

  it.each([
    ['the engine', 'http://speech-engine.internal/audio'],
    ['an address with credentials', 'https://user:password@example.com/'],
  ])('refuses a callback to %s before it looks at the audio', async (_what, callback) => {
    const response = await fetch(`${tenant.url}/v1/listen?callback=${encodeURIComponent(callback)}`, {
      method: 'POST',
      headers: { 'content-type': 'audio/wav' },
      body: 'no audio at all',
    });
    expect(await response.json()).toMatchObject({
      err_code: 'INVALID_QUERY_PARAMETER',
      err_msg: expect.stringContaining('callback'),
    });
  });
});

describe('uploads', () => {
  it.each(['/v1/listen', '/v1/read?summarize=true'])('%s takes no more when they name no length', async (path) => {
    const wav = toneWav(40);
    expect(wav.length).toBeGreaterThan(MAX_BYTES);
    const response = await fetch(`${tenant.url}${path}`, {
      method: 'POST',
      headers: { 'content-type': 'audio/wav' },
      body: new Blob([wav]).stream(),
      duplex: 'half',
    } as RequestInit);
    expect(response.status).toBe(413);
    expect(await response.json()).toMatchObject({
      err_code: 'PAYLOAD_TOO_LARGE',
      err_msg: expect.stringContaining(`${MAX_BYTES} bytes`),
    });
    const small = await fetch(`${tenant.url}/v1/listen`, {
      method: 'POST',
      headers: { 'content-type': 'audio/wav' },
      body: new Blob([toneWav(1)]).stream(),
      duplex: 'half',
    } as RequestInit);
    expect([small.status, small.headers.get('x-charge')]).toEqual([200, '0.0001']);
  });
});

describe('audio', () => {
  it.each([
    ['a playlist that claims to be audio', '/playlist-as-audio', 'UNSUPPORTED_AUDIO'],
    ['a list of files that claims to be audio', '/ffconcat-as-audio', 'UNSUPPORTED_AUDIO'],
    ['a broken header', '/broken-header.wav', 'UNSUPPORTED_AUDIO'],
    ['noise after a frame header', '/noise.mp3', 'UNSUPPORTED_AUDIO'],
    ['nothing', '/empty', 'UNSUPPORTED_AUDIO'],
  ])('refuses %s, uncharged', async (_what, path, code) => {
    expect(await listen(`${base}${path}`)).toMatchObject({ status: 400, charge: null, code });
    expect(trespasses).toBe(0);
  });

  it('charges what is there, not what a header claims', async () => {
    const outcome = await listen(`${base}/lying-header.wav`);
    // either it cannot be decoded, or its second is a second
    if (outcome.status === 200) expect(Number(outcome.charge)).toBeLessThanOrEqual(0.0001);
    else expect(outcome).toMatchObject({ status: 400, charge: null });
  });

  it('ends the decoding of an hour of silence in a small file', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'silence-'));
    try {
      const file = join(folder, 'silence.flac');
      const args = ['-v', 'error', '-f', 'lavfi', '-i', 'anullsrc=r=8000:cl=mono', '-t', '3600', file];
      expect(spawnSync('ffmpeg', args).status).toBe(0);
      const silence = readFileSync(file);
      expect(silence.length).toBeLessThan(MAX_BYTES);
      PAGES['/silence.flac'] = (response) => audio(response, silence);
      expect(await listen(`${base}/silence.flac`)).toMatchObject({
        status: 413,
        charge: null,
        code: 'PAYLOAD_TOO_LARGE',
      });
    } finally {
      rmSync(folder, { recursive: true });
    }
  });

  it('refuses eight channels at 192 kHz before it decodes them', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'wide-'));
    try {
      for (const [rate, layout, expected] of [
        [192_000, '7.1', { status: 413, charge: null, code: 'PAYLOAD_TOO_LARGE' }],
        [48_000, '7.1', { status: 200, charge: '0.0001' }],
      ] as const) {
        const file = join(folder, `${rate}.flac`);
        const args = ['-v', 'error', '-f', 'lavfi', '-i', `anullsrc=r=${rate}:cl=${layout}`, '-t', '1', file];
        expect(spawnSync('ffmpeg', args).status).toBe(0);
        const content = readFileSync(file);
        PAGES[`/${rate}.flac`] = (response) => audio(response, content);
        expect(await listen(`${base}/${rate}.flac`)).toMatchObject(expected);
      }
    } finally {
      rmSync(folder, { recursive: true });
    }
  });

  it('decodes no more than is held, and says what all of it costs', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'held-'));
    try {
      const file = join(folder, 'long.flac');
      const args = ['-v', 'error', '-f', 'lavfi', '-i', 'anullsrc=r=8000:cl=mono', '-t', '20', file];
      expect(spawnSync('ffmpeg', args).status).toBe(0);
      const response = await fetch(`${tenant.url}/v1/listen`, {
        method: 'POST',
        headers: { 'content-type': 'audio/flac', 'x-max-price': '0.0003' },
        body: readFileSync(file),
      });
      expect(response.status).toBe(402);
      expect(await response.json()).toMatchObject({ needed_usd: '0.002', held_usd: '0.0003' });
    } finally {
      rmSync(folder, { recursive: true });
    }
  });

  it('still works after all that', async () => {
    expect(await listen(`${base}/tone.wav`)).toMatchObject({ status: 200, charge: '0.0001' });
  });
});

describe('a page to read', () => {
  it.each(['/unclosed.html', '/unended.html'])('%s keeps nobody waiting', async (path) => {
    const asked = fetch(`${tenant.url}/v1/read?topics=true`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ url: `${base}${path}` }),
    });
    let done = false;
    const answered = asked.finally(() => {
      done = true;
    });
    let worst = 0;
    while (!done) {
      const started = performance.now();
      await (await fetch(`${tenant.url}/llms.txt`)).text();
      worst = Math.max(worst, performance.now() - started);
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
    expect((await answered).status).toBe(200);
    expect(worst).toBeLessThan(2000);
  });

  async function summaryOf(
    type: string,
    body: string | Buffer<ArrayBuffer>,
  ): Promise<{ status: number; said: string }> {
    const init = { method: 'POST', headers: { 'content-type': type }, body };
    const response = await fetch(`${tenant.url}/v1/read?summarize=true`, init);
    const answer = (await response.json()) as { err_msg?: string; results?: { summary: { text: string } } };
    return { status: response.status, said: answer.err_msg ?? answer.results?.summary.text ?? '' };
  }

  it('is read in the charset that it names, at a URL or in the body', async () => {
    const [known, unknown] = ['latin-1', 'unknown'].map((name) => JSON.stringify({ url: `${base}/${name}.txt` }));
    expect(await summaryOf('application/json', known ?? '')).toEqual({ status: 200, said: CAFE });
    expect(await summaryOf('text/plain;charset="iso-8859-1"', LATIN_1)).toEqual({ status: 200, said: CAFE });
    expect(await summaryOf('text/plain', LATIN_1)).toMatchObject({
      status: 400,
      said: expect.stringContaining('UTF-8'),
    });
    expect(await summaryOf('application/json', unknown ?? '')).toMatchObject({
      status: 400,
      said: expect.stringContaining('klingon'),
    });
  });
});
