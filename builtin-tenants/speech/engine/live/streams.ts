/**
 * The live streams of the engine: `GET /live?…` with an upgrade. So many run at a time and no payer holds more than half
 * of the places; the next is refused before it costs anything.
 */
import { randomUUID } from 'node:crypto';
import { mkdir, rm } from 'node:fs/promises';
import type { IncomingMessage } from 'node:http';
import { join } from 'node:path';
import type { Duplex } from 'node:stream';
import { WebSocketServer } from 'ws';
import type { Confine } from '../confine.ts';
import { asFailure, EngineFailure } from '../failure.ts';
import { Lane, type LaneState } from '../lane.ts';
import type { Refusals } from '../refusals.ts';
import type { LiveRecognizer } from './recognizer.ts';
import { type LiveRequest, parseLive } from './request.ts';
import { Session } from './session.ts';

/** The model is kept for so long after the last stream, ms. */
const IDLE_MS = 300_000;
/** A frame of audio. Deepgram's clients send a tenth of a second or so. */
const MOST_FRAME_BYTES = 1024 * 1024;

export interface StreamsOptions {
  /** Undefined: nothing transcribes here; `fix` says why. */
  recognizer: LiveRecognizer | undefined;
  fix: string | undefined;
  /** Streams at a time. */
  places: number;
  /** Undefined: containers cannot be decoded as they come. */
  ffmpeg: string | undefined;
  confine: Confine;
  /** The same that files have: whoever sent what is no audio waits, however it came. */
  refusals: Refusals;
  /** Where each stream has a folder. */
  spool: string;
  log(line: object): void;
}

export class LiveStreams {
  readonly #options: StreamsOptions;
  readonly #lane: Lane;
  readonly #sessions = new Set<Session>();
  #idle: NodeJS.Timeout | undefined;
  readonly #server = new WebSocketServer({
    noServer: true,
    maxPayload: MOST_FRAME_BYTES,
    perMessageDeflate: false,
    clientTracking: false,
  });

  constructor(options: StreamsOptions) {
    this.#options = options;
    this.#lane = new Lane('live', { jobs: options.places, waiting: 0 });
  }

  get state(): LaneState {
    return { ...this.#lane.state, running: this.#sessions.size };
  }

  async upgrade(message: IncomingMessage, socket: Duplex, head: Buffer): Promise<void> {
    socket.on('error', () => socket.destroy());
    try {
      const url = new URL(message.url ?? '/', 'http://speech-engine.internal');
      if (url.pathname !== '/live') throw new EngineFailure('not_found', 'No WebSocket is here.');
      const { recognizer, fix } = this.#options;
      if (recognizer === undefined) throw new EngineFailure('no_engine', fix ?? 'Nothing transcribes here.');
      await this.#open(parseLive(url.searchParams), recognizer, message, socket, head);
    } catch (error) {
      refuse(socket, asFailure(error));
    }
  }

  close(): void {
    for (const session of this.#sessions) session.close();
    this.#options.recognizer?.close();
  }

  #over(session: Session): void {
    this.#sessions.delete(session);
    if (this.#sessions.size > 0) return;
    clearTimeout(this.#idle);
    this.#idle = setTimeout(() => this.#sessions.size === 0 && this.#options.recognizer?.close(), IDLE_MS).unref();
  }

  async #open(
    request: LiveRequest,
    recognizer: LiveRecognizer,
    message: IncomingMessage,
    socket: Duplex,
    head: Buffer,
  ): Promise<void> {
    const { ffmpeg, confine, refusals, spool, log } = this.#options;
    refusals.check(request.names);
    const place = this.#lane.admit(request.names);
    const folder = request.raw === undefined && ffmpeg !== undefined ? join(spool, `live-${randomUUID()}`) : undefined;
    const leave = () => {
      place.leave();
      if (folder !== undefined) void rm(folder, { recursive: true, force: true });
    };
    socket.once('close', leave);
    try {
      if (folder !== undefined) await mkdir(folder, { mode: 0o700 });
      await recognizer.prepare();
      clearTimeout(this.#idle);
      this.#server.handleUpgrade(message, socket, head, (webSocket) => {
        const contained = folder === undefined || ffmpeg === undefined ? undefined : { ffmpeg, confine, folder };
        const ended = (how: 'heard' | 'refused' | 'neither') => {
          if (how === 'refused') refusals.refused(request.names);
          else if (how === 'heard') refusals.done(request.names);
        };
        const session = new Session({ socket: webSocket, request, recognizer, contained, ended, log });
        this.#sessions.add(session);
        webSocket.once('close', () => this.#over(session));
      });
    } catch (error) {
      leave();
      throw error;
    }
  }
}

function refuse(socket: Duplex, failure: EngineFailure): void {
  const body = JSON.stringify(failure);
  const { retryAfter } = failure.facts;
  socket.end(
    [
      `HTTP/1.1 ${failure.status} Refused`,
      'content-type: application/json',
      `content-length: ${Buffer.byteLength(body)}`,
      ...(retryAfter === undefined ? [] : [`retry-after: ${retryAfter}`]),
      'connection: close',
      '',
      body,
    ].join('\r\n'),
  );
}
