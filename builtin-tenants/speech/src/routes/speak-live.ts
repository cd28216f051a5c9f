/**
 * GET /v1/speak with an upgrade: text to audio as it comes, by Deepgram's protocol (Speak, Flush, Clear, Close). Each
 * sentence is made, then charged by its characters, then sent: what was not made costs nothing, what is sent is paid.
 */
import type { Visit } from '../context.ts';
import type { SpeakEngine } from '../engines/engine.ts';
import { asFailure, SpeechFailure } from '../failure.ts';
import { callerOf, heldFor } from '../limit.ts';
import { Meter, MeterRefused } from '../live/meter.ts';
import { Sentences } from '../live/pieces.ts';
import { closeSocket, socketAnswer, socketPair, type WorkerSocket } from '../live/sockets.ts';
import { type MicroUsd, priceOfText } from '../money.ts';
import { readSpeakOptions, type SpeakOptions } from '../options/speak.ts';
import { isSsml } from '../options/ssml.ts';
import { unknownOptions, warning } from '../warnings.ts';

/**
 * Of one stream. Audio that its listener does not take waits in memory, and a WebSocket here has no brake: so the text
 * is bounded, and so are the streams. 5,000 characters are some six minutes, 16 MB at 24 kHz.
 */
const MOST_CHARACTERS = 5_000;
const MOST_STREAMS = 8;
const MOST_OF_ONE = MOST_STREAMS / 2;
const SILENT_MS = 60_000;
const LONGEST_MS = 3_600_000;
/** As Deepgram's. */
const MOST_FLUSHES = { count: 20, ms: 60_000 };

/** Streams that are open, by payer. */
const open = new Map<string, number>();

export async function speakLive(visit: Visit): Promise<Response> {
  const { request, settings, engines } = visit;
  if (request.headers.get('upgrade')?.toLowerCase() !== 'websocket')
    throw new SpeechFailure('METHOD_NOT_ALLOWED', 'GET opens a WebSocket here; POST text to have it spoken.');
  const asked = readSpeakOptions(visit.url.searchParams);
  const { encoding = 'linear16', sampleRate } = asked;
  if (asked.callback !== undefined || !['linear16', 'mulaw', 'alaw'].includes(encoding) || asked.container === 'ogg')
    throw new SpeechFailure(
      'UNPROCESSABLE_OPTION',
      'A stream takes encoding linear16, mulaw or alaw, and no callback.',
    );
  const options: SpeakOptions = {
    ...asked,
    encoding,
    container: 'none',
    sampleRate: sampleRate ?? (encoding === 'linear16' ? 24_000 : 8_000),
  };
  const meter = new Meter(visit.payments, request);
  const payer = callerOf(request).payer ?? '';
  const all = [...open.values()].reduce((sum, count) => sum + count, 0);
  if (all >= MOST_STREAMS || (open.get(payer) ?? 0) >= MOST_OF_ONE)
    throw new SpeechFailure('TOO_MANY_REQUESTS', 'Too many streams are open; try again soon.', { retryAfter: 5 });
  open.set(payer, (open.get(payer) ?? 0) + 1);
  const [theirs, ours] = socketPair();
  new SpeakStream({
    socket: ours,
    engine: engines.speak,
    options,
    meter,
    held: heldFor(request, '/v1/speak'),
    perMillion: settings.perMillionCharacters,
    requestId: visit.requestId,
    ended: () => {
      const left = (open.get(payer) ?? 1) - 1;
      if (left > 0) open.set(payer, left);
      else open.delete(payer);
    },
  }).start();
  return socketAnswer(theirs, { 'dg-request-id': visit.requestId, 'x-request-id': visit.requestId });
}

interface Parts {
  socket: WorkerSocket;
  engine: SpeakEngine;
  options: SpeakOptions;
  meter: Meter;
  held: MicroUsd;
  perMillion: number;
  requestId: string;
  ended(): void;
}

class SpeakStream {
  readonly #parts: Parts;
  readonly #sentences = new Sentences();
  readonly #timers: ReturnType<typeof setTimeout>[] = [];
  #work: Promise<void> = Promise.resolve();
  #abort = new AbortController();
  #silent: ReturnType<typeof setTimeout> | undefined;
  /** Taken, spoken and charged. */
  #taken = 0;
  #spoken = 0;
  #sequence = 0;
  #flushes: number[] = [];
  #over = false;

  constructor(parts: Parts) {
    this.#parts = parts;
  }

  start(): void {
    const { socket, requestId, engine, options } = this.#parts;
    socket.addEventListener('message', ({ data }) => this.#receive(data));
    socket.addEventListener('close', () => this.#stop());
    socket.addEventListener('error', () => this.#stop());
    socket.accept();
    this.#timers.push(
      setTimeout(() => this.#end(1000, 'a stream lasts an hour at most; open another one'), LONGEST_MS),
    );
    this.#heard();
    const name = options.model ?? engine.name;
    const warnings = unknownOptions(options.unknown).map(warning);
    this.#say({
      type: 'Metadata',
      request_id: requestId,
      model_name: name,
      model_version: '',
      model_uuid: name,
      ...(warnings.length === 0 ? {} : { warnings }),
    });
  }

  #heard(): void {
    clearTimeout(this.#silent);
    this.#silent = setTimeout(() => this.#end(1011, 'NET-0001: no message came for 60 s'), SILENT_MS);
  }

  #receive(data: string | ArrayBuffer): void {
    if (this.#over) return;
    this.#heard();
    const message = typeof data === 'string' ? parsed(data) : undefined;
    switch (message?.type) {
      case 'Speak':
        this.#speak(message.text);
        return;
      case 'Flush':
        this.#flush();
        return;
      case 'Clear':
        this.#clear();
        return;
      case 'Close':
        this.#put(this.#sentences.flush());
        this.#after(() => this.#end(1000, 'the stream was closed'));
        return;
      case 'KeepAlive':
        return;
      default:
        this.#end(1008, 'DATA-0001: send Speak, Flush, Clear or Close as JSON');
    }
  }

  #speak(text: unknown): void {
    if (typeof text !== 'string') {
      this.#end(1008, 'DATA-0001: Speak takes a text');
      return;
    }
    this.#taken += text.length;
    if (this.#taken > MOST_CHARACTERS) {
      this.#put(this.#sentences.flush());
      this.#after(() => this.#end(1000, `a stream takes ${MOST_CHARACTERS} characters; open another one`));
    } else this.#put(this.#sentences.push(text));
  }

  #flush(): void {
    const now = Date.now();
    this.#flushes = this.#flushes.filter((at) => now - at < MOST_FLUSHES.ms);
    if (this.#flushes.length >= MOST_FLUSHES.count) {
      this.#say({ type: 'Warning', code: 'EXCESSIVE_FLUSH', description: 'At most 20 flushes a minute are done.' });
      return;
    }
    this.#flushes.push(now);
    this.#put(this.#sentences.flush());
    this.#after(() => this.#say({ type: 'Flushed', sequence_id: this.#sequence++ }));
  }

  /** What is not spoken yet is forgotten, and costs nothing. */
  #clear(): void {
    this.#sentences.clear();
    this.#abort.abort();
    this.#abort = new AbortController();
    this.#after(() => this.#say({ type: 'Cleared', sequence_id: this.#sequence++ }));
  }

  #put(pieces: string[]): void {
    const { signal } = this.#abort;
    for (const piece of pieces) this.#after(() => (signal.aborted ? undefined : this.#make(piece, signal)));
  }

  #after(work: () => void | Promise<void>): void {
    this.#work = this.#work.then(async () => {
      if (!this.#over) await work();
    });
  }

  async #make(text: string, signal: AbortSignal): Promise<void> {
    const { engine, options, meter, held, perMillion, socket } = this.#parts;
    const characters = this.#spoken + text.length;
    if (isSsml(text)) {
      this.#end(1008, 'DATA-0001: a stream reads no SSML; send the text alone, or SSML by POST');
      return;
    }
    const total = priceOfText(characters, perMillion);
    if (total > held) {
      this.#end(1000, 'PAYMENT-0001: what is held is used up; hold more with x-max-price');
      return;
    }
    try {
      const speech = await engine.speak({ text, options, signal });
      const audio = speech.body instanceof Uint8Array ? speech.body : await new Response(speech.body).arrayBuffer();
      if (signal.aborted || this.#over) return;
      await meter.charged(total);
      this.#spoken = characters;
      if (this.#over) return;
      // in messages that a listener can take one by one
      const bytes = audio instanceof Uint8Array ? audio : new Uint8Array(audio);
      for (let at = 0; at < bytes.length; at += 32_768) socket.send(bytes.slice(at, at + 32_768).buffer as ArrayBuffer);
    } catch (error) {
      if (signal.aborted) return;
      if (error instanceof MeterRefused) this.#end(1011, 'PAYMENT-0002: the payment ended; open another stream');
      else this.#end(1011, `NET-0000: ${asFailure(error).code}; open another stream`);
    }
  }

  #say(message: object): void {
    if (!this.#over) this.#parts.socket.send(JSON.stringify(message));
  }

  #end(code: number, reason: string): void {
    if (this.#over) return;
    const { meter, socket } = this.#parts;
    const characters = this.#spoken;
    this.#say({ type: 'Metadata', request_id: this.#parts.requestId, charge: { usd: meter.charge, characters } });
    closeSocket(socket, code, `${reason}; charged ${meter.charge} USD for ${characters} characters`);
    this.#stop();
  }

  #stop(): void {
    if (this.#over) return;
    this.#over = true;
    this.#abort.abort();
    clearTimeout(this.#silent);
    for (const timer of this.#timers) clearTimeout(timer);
    this.#parts.ended();
    closeSocket(this.#parts.socket, 1000, '');
  }
}

function parsed(text: string): { type?: unknown; text?: unknown } | undefined {
  try {
    return (JSON.parse(text) as { type?: unknown; text?: unknown } | null) ?? undefined;
  } catch {
    return undefined;
  }
}
