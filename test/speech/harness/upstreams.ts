/** Real HTTP servers that answer as Deepgram and OpenAI-compatible servers do, well and badly. */
import { once } from 'node:events';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';

/** How the next answers are given. */
export type Mood =
  | 'success'
  | 'unauthorized'
  | 'bad request'
  | 'busy'
  | 'broken'
  | 'silent'
  | 'slow body'
  | 'endless body'
  | 'half body'
  | 'not json'
  | 'text and duration'
  | 'text alone';

export interface Received {
  method: string;
  path: string;
  query: URLSearchParams;
  headers: IncomingMessage['headers'];
  body: Buffer;
}

export interface Upstream {
  url: string;
  mood: Mood;
  received: Received[];
  stop(): void;
}

/** Recorded from api.deepgram.com's documentation, shortened. */
const DEEPGRAM_LISTEN = {
  metadata: {
    transaction_key: 'deprecated',
    request_id: '2479c8c8-8185-40ac-9ac6-f0874419f793',
    sha256: '154e291ecfa8be6ab8343560bcc109008fa7853eb5372533e8efdefc9b504c33',
    created: '2024-02-06T19:56:16.180Z',
    duration: 25.933313,
    channels: 1,
    models: ['30089e05-99d1-4376-b32e-c263170674af'],
    model_info: {
      '30089e05-99d1-4376-b32e-c263170674af': { name: '2-general-nova', version: '2024-01-09.29447', arch: 'nova-2' },
    },
  },
  results: {
    channels: [
      {
        alternatives: [
          {
            transcript: 'Yeah. As as much as, it is worth celebrating.',
            confidence: 0.99902344,
            words: [
              { word: 'yeah', start: 0.08, end: 0.32, confidence: 0.9975586, speaker: 0, punctuated_word: 'Yeah.' },
              { word: 'as', start: 0.32, end: 0.79999995, confidence: 0.9921875, speaker: 0, punctuated_word: 'As' },
            ],
          },
        ],
      },
    ],
  },
};

const DEEPGRAM_READ = {
  metadata: { request_id: 'a', created: '2024-01-01T00:00:00Z', language: 'en' },
  results: {
    summary: { text: 'A summary.' },
    sentiments: { segments: [], average: { sentiment: 'neutral', sentiment_score: 0.1 } },
  },
};

/** As OpenAI answers `verbose_json` with word times: words at the top. */
export const OPENAI_TRANSCRIPTION = {
  task: 'transcribe',
  language: 'english',
  duration: 8.47,
  text: 'The beach was a popular spot.',
  words: [
    { word: 'The', start: 0, end: 0.3 },
    { word: 'beach', start: 0.3, end: 0.7 },
    { word: 'was', start: 0.7, end: 0.9 },
    { word: 'a', start: 0.9, end: 1.0 },
    { word: 'popular', start: 1.0, end: 1.6 },
    { word: 'spot.', start: 1.6, end: 2.1 },
  ],
  segments: [{ id: 0, start: 0, end: 3.3, text: ' The beach was a popular spot.', avg_logprob: -0.25 }],
};

const CHAT = {
  choices: [
    {
      message: {
        content: JSON.stringify({
          summary: { text: 'Two orders.', sentences: [1, 0], confidence: 0.7 },
          topics: [{ sentence: 1, topic: 'Refund', confidence: 0.8 }],
          intents: [{ sentence: 0, intent: 'Cancel order', confidence: 0.9 }],
          sentiments: [
            { sentence: 0, score: -0.6 },
            { sentence: 1, score: 0.2 },
          ],
        }),
      },
    },
  ],
};

export const UPSTREAM_AUDIO = Buffer.from('ID3 twenty-four bytes…');

const ANSWERS: Record<string, { type: string; body: Buffer; headers?: Record<string, string> }> = {
  '/v1/listen': { type: 'application/json', body: Buffer.from(JSON.stringify(DEEPGRAM_LISTEN)) },
  '/v1/speak': { type: 'audio/mpeg', body: UPSTREAM_AUDIO, headers: { 'dg-model-name': 'aura-2-thalia-en' } },
  '/v1/read': { type: 'application/json', body: Buffer.from(JSON.stringify(DEEPGRAM_READ)) },
  '/v1/audio/transcriptions': { type: 'application/json', body: Buffer.from(JSON.stringify(OPENAI_TRANSCRIPTION)) },
  '/v1/audio/speech': { type: 'audio/mpeg', body: UPSTREAM_AUDIO },
  '/v1/chat/completions': { type: 'application/json', body: Buffer.from(JSON.stringify(CHAT)) },
};

export async function startUpstream(): Promise<Upstream> {
  const received: Received[] = [];
  const state: { mood: Mood } = { mood: 'success' };
  const server: Server = createServer(async (request, response) => {
    const chunks: Buffer[] = [];
    for await (const chunk of request as AsyncIterable<Buffer>) chunks.push(chunk);
    const url = new URL(request.url ?? '/', 'http://upstream');
    received.push({
      method: request.method ?? '',
      path: url.pathname,
      query: url.searchParams,
      headers: request.headers,
      body: Buffer.concat(chunks),
    });
    answer(state.mood, url.pathname, response);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    received,
    get mood() {
      return state.mood;
    },
    set mood(mood) {
      state.mood = mood;
    },
    stop() {
      server.closeAllConnections();
      server.close();
    },
  };
}

function answer(mood: Mood, path: string, response: ServerResponse): void {
  const good = ANSWERS[path] ?? { type: 'text/plain', body: Buffer.from('?') };
  const error = (status: number, text: string, headers = {}) =>
    response
      .writeHead(status, { 'content-type': 'application/json', ...headers })
      .end(JSON.stringify({ err_code: 'E', err_msg: text, error: { message: text } }));
  const headers = { 'content-type': good.type, ...good.headers };
  switch (mood) {
    case 'success':
      response.writeHead(200, { ...headers, 'content-length': good.body.length }).end(good.body);
      return;
    case 'unauthorized':
      error(401, 'Invalid credentials of account 4711');
      return;
    case 'bad request':
      error(400, 'Bad Request: no such model/language combination');
      return;
    case 'busy':
      error(429, 'Too many requests', { 'retry-after': '7' });
      return;
    case 'broken':
      error(500, 'stack trace at /srv/secret');
      return;
    case 'silent':
      return;
    case 'slow body': {
      response.writeHead(200, headers);
      const piece = Math.ceil(good.body.length / 5);
      let at = 0;
      const timer = setInterval(() => {
        response.write(good.body.subarray(at, at + piece));
        at += piece;
        if (at < good.body.length) return;
        clearInterval(timer);
        response.end();
      }, 20);
      return;
    }
    case 'endless body': {
      response.writeHead(200, headers);
      const timer = setInterval(() => response.write(' '), 20);
      response.once('close', () => clearInterval(timer));
      return;
    }
    case 'half body':
      response.writeHead(200, { ...headers, 'content-length': good.body.length });
      response.write(good.body.subarray(0, good.body.length / 2), () => response.destroy());
      return;
    case 'text and duration':
    case 'text alone': {
      const { text, duration } = OPENAI_TRANSCRIPTION;
      const body = mood === 'text alone' ? { text } : { text, duration };
      response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify(body));
      return;
    }
    case 'not json':
      response.writeHead(200, { 'content-type': 'text/html' }).end('<html>gateway</html>');
      return;
  }
}
