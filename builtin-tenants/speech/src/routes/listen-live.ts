/**
 * GET /v1/listen with an upgrade: audio to words as it comes, by Deepgram's live protocol. The engine process hears and
 * writes the messages; here each is paid for before it is passed on, and the caller is told what it was charged.
 */
import type { Visit } from '../context.ts';
import { call } from '../engines/call.ts';
import { failureOf } from '../engines/embedded.ts';
import { SpeechFailure } from '../failure.ts';
import { callerOf, heldFor } from '../limit.ts';
import { Meter, MeterRefused } from '../live/meter.ts';
import { closeSocket, socketAnswer, socketOf, socketPair, type WorkerSocket } from '../live/sockets.ts';
import { audioFor, type MicroUsd, priceOfAudio } from '../money.ts';
import { type LiveOptions, readLiveOptions } from '../options/live.ts';
import { formatWarnings, isEnglish } from '../shape/listen.ts';
import { languageOf, withFormats } from '../shape/live.ts';
import { unknownOptions, warning } from '../warnings.ts';

/** What the engine has not worked on yet: nobody may send more ahead. A WebSocket here has no other brake. */
const MOST_AHEAD_BYTES = 4 * 1024 * 1024;
/** Of one message. */
const MOST_TEXT = 16 * 1024;
const MOST_AUDIO = 1024 * 1024;
/** What a message weighs beside its bytes (engine/live/messages.ts). */
const MESSAGE_BYTES = 64;
const CONNECT_MS = 70_000;

/** From the engine: engine/live/messages.ts. */
interface LiveLine {
  heardMs: number;
  bytes: number;
  message?: Record<string, unknown>;
  end?: { code: number; reason: string; duration: number; channels: number; warnings: string[] };
}

export async function listenLive(visit: Visit): Promise<Response> {
  const { request, settings } = visit;
  if (request.headers.get('upgrade')?.toLowerCase() !== 'websocket')
    throw new SpeechFailure('METHOD_NOT_ALLOWED', 'GET opens a WebSocket here; POST audio to have it transcribed.');
  const options = readLiveOptions(visit.url.searchParams);
  const meter = new Meter(visit.payments, request);
  const held = audioFor(heldFor(request, '/v1/listen'), settings.perSecond);
  const most = Math.min(Math.floor(held / 1000), 1_000_000) * 1000;
  const engine = await connect(visit, options, most);
  const [theirs, ours] = socketPair();
  const stream = new Stream({
    caller: ours,
    engine,
    meter,
    perSecond: settings.perSecond,
    requestId: visit.requestId,
    options,
  });
  stream.start();
  return socketAnswer(theirs, { 'dg-request-id': visit.requestId, 'x-request-id': visit.requestId });
}

async function connect({ request, settings, requestId }: Visit, options: LiveOptions, most: number) {
  const { listen } = options;
  const { payer, address } = callerOf(request);
  const query = new URLSearchParams({
    ...(listen.raw && { encoding: listen.raw.encoding, sample_rate: String(listen.raw.sampleRate) }),
    channels: String(options.channels),
    multichannel: String(listen.multichannel),
    ...(listen.language && { language: listen.language }),
    punctuate: String(listen.punctuate || listen.smartFormat),
    interim: String(options.interim),
    vad_events: String(options.vadEvents),
    endpointing: String(options.endpointingMs),
    ...(options.utteranceEndMs && { utterance_end: String(options.utteranceEndMs) }),
    max_billable_ms: String(most),
    request_id: requestId,
    ...(payer && { payer }),
    ...(address && { address }),
  });
  const signal = AbortSignal.timeout(CONNECT_MS);
  const how = { name: 'embedded', signal };
  const response = await call(`${settings.engineUrl}/live?${query}`, { headers: { upgrade: 'websocket' } }, how);
  const socket = socketOf(response);
  if (socket === undefined) throw await failureOf(response, how);
  return socket;
}

class Stream {
  readonly #caller: WorkerSocket;
  readonly #engine: WorkerSocket;
  readonly #meter: Meter;
  readonly #perSecond: MicroUsd;
  readonly #requestId: string;
  readonly #options: LiveOptions;
  #sent = 0;
  #worked = 0;
  /** Each that has begun is charged, over all channels. */
  #seconds = 0;
  /** The first language that was heard and is not English. */
  #foreign: string | undefined;
  #over = false;
  #lines: Promise<void> = Promise.resolve();

  constructor(parts: {
    caller: WorkerSocket;
    engine: WorkerSocket;
    meter: Meter;
    perSecond: MicroUsd;
    requestId: string;
    options: LiveOptions;
  }) {
    this.#caller = parts.caller;
    this.#engine = parts.engine;
    this.#meter = parts.meter;
    this.#perSecond = parts.perSecond;
    this.#requestId = parts.requestId;
    this.#options = parts.options;
  }

  start(): void {
    this.#caller.addEventListener('message', ({ data }) => this.#fromCaller(data));
    this.#caller.addEventListener('close', () => this.#callerLeft());
    this.#caller.addEventListener('error', () => this.#callerLeft());
    this.#engine.addEventListener('message', ({ data }) => {
      // one after the other: what is passed on is paid, and in order
      this.#lines = this.#lines.then(() => this.#fromEngine(JSON.parse(String(data)) as LiveLine));
    });
    const died = () => {
      this.#lines = this.#lines.then(() => this.#end(1011, 'NET-0000: the speech engine ended; open another stream'));
    };
    this.#engine.addEventListener('close', died);
    this.#engine.addEventListener('error', died);
    this.#caller.binaryType = 'arraybuffer';
    this.#engine.accept();
    this.#caller.accept();
  }

  #fromCaller(data: string | ArrayBuffer): void {
    if (this.#over) return;
    const size = typeof data === 'string' ? data.length : data.byteLength;
    this.#sent += MESSAGE_BYTES + size;
    if (size > (typeof data === 'string' ? MOST_TEXT : MOST_AUDIO))
      this.#end(1009, 'DATA-0002: send at most 1 MiB of audio, or 16 KiB of text, in a message');
    else if (this.#sent - this.#worked > MOST_AHEAD_BYTES)
      this.#end(1008, 'DATA-0003: the audio came too far ahead; send it as it is spoken');
    else this.#engine.send(data);
  }

  #callerLeft(): void {
    if (this.#over) return;
    this.#over = true;
    closeSocket(this.#engine, 1000, '');
    closeSocket(this.#caller, 1000, '');
  }

  async #fromEngine({ heardMs, bytes, message, end }: LiveLine): Promise<void> {
    if (this.#over) return;
    this.#worked = bytes;
    try {
      const seconds = Math.ceil(heardMs / 1000);
      if (seconds > 0) await this.#meter.charged(priceOfAudio(seconds * 1000, this.#perSecond));
      this.#seconds = seconds;
    } catch (error) {
      if (!(error instanceof MeterRefused)) console.error(error);
      this.#end(1011, 'PAYMENT-0002: the payment ended; open another stream');
      return;
    }
    // whoever left meanwhile has paid for it
    if (this.#over) return;
    const language = message && languageOf(message);
    if (!isEnglish(this.#options.listen, language)) this.#foreign ??= language;
    if (message !== undefined) this.#caller.send(JSON.stringify(withFormats(message, this.#options.listen)));
    if (end !== undefined) this.#end(end.code, end.reason, end);
  }

  /** Tells the caller how it ended and what was charged. */
  #end(
    code: number,
    reason: string,
    { duration, channels, warnings }: Partial<NonNullable<LiveLine['end']>> = {},
  ): void {
    if (this.#over) return;
    this.#over = true;
    const { charge } = this.#meter;
    const seconds = this.#seconds;
    const { listen } = this.#options;
    const all = [
      ...this.#options.warnings,
      ...(warnings ?? []),
      ...formatWarnings(listen, this.#foreign),
      ...listen.special.map((name) => `${name}: not offered for live streams`),
      ...unknownOptions(listen.unknown),
    ];
    this.#caller.send(
      JSON.stringify({
        type: 'Metadata',
        transaction_key: 'deprecated',
        request_id: this.#requestId,
        sha256: '',
        created: new Date().toISOString(),
        duration: duration ?? 0,
        channels: channels ?? 0,
        charge: { usd: charge, seconds },
        ...(all.length === 0 ? {} : { warnings: all.map(warning) }),
      }),
    );
    closeSocket(this.#caller, code, `${reason}; charged ${charge} USD for ${seconds} s`);
    closeSocket(this.#engine, 1000, '');
  }
}
