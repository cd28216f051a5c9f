/**
 * The engine's HTTP: POST /listen, /audio, /speak, /read; GET and DELETE /audio/<id>; GET /health; GET /live
 * with an upgrade to a WebSocket.
 * Spoken on a unix socket that only the speech tenant may reach.
 */
import { createReadStream } from 'node:fs';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { pipeline } from 'node:stream/promises';
import type { Engine } from './engine.ts';
import { asFailure, EngineFailure } from './failure.ts';
import { parseListen, parseRead, parseSpeak, readJson } from './requests.ts';
import type { Settings } from './settings.ts';
import type { SpeechSink } from './speak/speaker.ts';

/** Speech that slow listeners have not taken yet; beyond it new speech is refused. */
const UNSENT_BYTES = 64 * 1024 * 1024;

const DISCARD_MS = 10_000;
const DISCARD_BYTES = 32 * 1024 * 1024;

interface Exchange {
  request: IncomingMessage;
  response: ServerResponse;
  url: URL;
  signal: AbortSignal;
}

/** @param log one line of JSON per failure that was not the caller's */
export function createEngineServer(engine: Engine, limits: Settings['limits'], log: (line: object) => void): Server {
  const unsent = new Set<ServerResponse>();
  const routes: Record<string, (exchange: Exchange) => Promise<void>> = {
    'GET /health': async ({ response }) => json(response, 200, engine.health()),
    'POST /listen': async ({ request, response, url, signal }) =>
      json(response, 200, await engine.listen(request, parseListen(url.searchParams), signal)),
    'POST /audio': async ({ request, response, url, signal }) =>
      json(response, 201, await engine.keep(request, parseListen(url.searchParams), signal)),
    'POST /read': async ({ request, response, signal }) =>
      json(response, 200, await engine.read(parseRead(await readJson(request, limits.textBytes * 2)), signal)),
    'POST /speak': async ({ request, response, signal }) => {
      const asked = parseSpeak(await readJson(request, limits.textBytes));
      const waiting = [...unsent].reduce((sum, one) => sum + one.writableLength, 0);
      if (waiting > UNSENT_BYTES) {
        throw new EngineFailure('queue_full', 'Too much speech is waiting to be taken.', { retryAfter: 5 });
      }
      unsent.add(response);
      response.once('close', () => unsent.delete(response));
      await engine.speak(asked, speechSink(response), signal);
      response.end();
    },
  };

  const server = createServer({ requestTimeout: 0, keepAliveTimeout: 30_000 }, async (request, response) => {
    const gone = new AbortController();
    response.once('close', () => {
      if (!response.writableFinished) gone.abort(new Error('the caller has gone'));
    });
    const url = new URL(request.url ?? '/', 'http://speech-engine.internal');
    try {
      const kept = /^\/audio\/([0-9a-f-]{36})$/.exec(url.pathname)?.[1];
      const route = routes[`${request.method} ${url.pathname}`];
      if (kept !== undefined) await keptAudio(engine, kept, request, response);
      else if (route !== undefined) await route({ request, response, url, signal: gone.signal });
      else throw new EngineFailure('not_found', 'Nothing is here.');
    } catch (error) {
      await discardRest(request);
      answerFailure(response, error, gone.signal.aborted ? () => {} : log);
    }
  });
  return server.on('upgrade', (request, socket, head) => void engine.live.upgrade(request, socket, head));
}

async function keptAudio(engine: Engine, id: string, request: IncomingMessage, response: ServerResponse) {
  const audio = engine.kept.get(id);
  if (audio === undefined) throw new EngineFailure('not_found', 'The audio was dropped.');
  if (request.method === 'DELETE') {
    engine.kept.drop(id);
    response.writeHead(204).end();
    return;
  }
  // fetched once: whether all of it was taken or the caller has gone, nobody comes back for it
  response.once('close', () => engine.kept.drop(id));
  response.writeHead(200, { 'content-type': 'application/octet-stream', 'content-length': audio.bytes });
  await pipeline(createReadStream(audio.path), response);
}

function speechSink(response: ServerResponse): SpeechSink {
  return {
    start({ format, engine, voice, warnings }) {
      response.writeHead(200, {
        'content-type': format.contentType,
        'x-engine': engine,
        'x-voice': voice,
        'x-warnings': encodeURIComponent(JSON.stringify(warnings)),
      });
    },
    write(bytes) {
      if (!response.destroyed) response.write(bytes);
    },
  };
}

function json(response: ServerResponse, status: number, body: object): void {
  response.writeHead(status, { 'content-type': 'application/json' });
  response.end(JSON.stringify(body));
}

function answerFailure(response: ServerResponse, error: unknown, log: (line: object) => void): void {
  const failure = asFailure(error);
  if (failure.code === 'internal') {
    log({
      level: 50,
      msg: 'speech engine',
      err: error instanceof Error ? (error.stack ?? error.message) : String(error),
      ...(error instanceof Error && typeof error.cause === 'string' ? { cause: error.cause } : {}),
    });
  }
  if (response.destroyed) return;
  if (response.headersSent) {
    response.destroy();
    return;
  }
  const { retryAfter } = failure.facts;
  if (retryAfter !== undefined) response.setHeader('retry-after', retryAfter);
  json(response, failure.status, failure);
}

/**
 * An answer that comes while the upload is still on its way can get lost between the two: so the rest of the upload is
 * taken and thrown away first, as long as that is soon done.
 */
async function discardRest(request: IncomingMessage): Promise<void> {
  if (request.complete || request.destroyed) return;
  let bytes = 0;
  const enough = Promise.withResolvers<void>();
  const timer = setTimeout(enough.resolve, DISCARD_MS);
  request.on('data', (chunk: Buffer) => {
    bytes += chunk.length;
    if (bytes > DISCARD_BYTES) enough.resolve();
  });
  request.once('end', enough.resolve);
  request.once('close', enough.resolve);
  request.resume();
  await enough.promise;
  clearTimeout(timer);
  if (request.complete) return;
  const giveUp = setTimeout(() => request.destroy(), DISCARD_MS);
  request.once('close', () => clearTimeout(giveUp));
}
