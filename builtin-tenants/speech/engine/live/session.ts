/**
 * One live stream from its first message to its close: audio and control messages in, lines out (messages.ts). It works
 * on one message after the other, takes no more audio than it can hear, and never more than is paid for.
 */
import type { WebSocket } from 'ws';
import { asFailure, EngineFailure } from '../failure.ts';
import { Channel } from './channel.ts';
import { ContainedInput, type ContainedOptions } from './contained-input.ts';
import { type LiveLine, MESSAGE_BYTES } from './messages.ts';
import { RawInput } from './raw-input.ts';
import type { LiveRecognizer } from './recognizer.ts';
import type { LiveRequest } from './request.ts';

const RATE = 16_000;
/** As Deepgram's: without audio or KeepAlive for so long, a stream ends. */
const SILENT_MS = 10_000;
/** A stream that brings less than a second of audio in this time holds its place for nothing. */
const IDLE_MS = 60_000;
const LONGEST_MS = 4 * 3_600_000;
/** Audio since the last answer to `Finalize`, below which another is not answered: what is answered is paid for. */
const LEAST_FINALIZED = RATE / 10;
/** Messages that wait; beyond it the socket is read no more until half of it is worked on. */
const MOST_WAITING_BYTES = 512 * 1024;
/** Lines that the tenant has not taken; beyond it nobody listens. */
const MOST_UNSENT_BYTES = 4 * 1024 * 1024;
/** The tenant is told how far the work is at least so often. */
const TELL_BYTES = 32 * 1024;

export interface SessionOptions {
  socket: WebSocket;
  request: LiveRequest;
  recognizer: LiveRecognizer;
  /** Decoder of containers; undefined: none is installed. */
  contained: Pick<ContainedOptions, 'ffmpeg' | 'confine' | 'folder'> | undefined;
  /** It is over: whether its audio was heard, or refused. */
  ended(how: 'heard' | 'refused' | 'neither'): void;
  log(line: object): void;
}

type Message = { size: number } & ({ kind: 'audio'; bytes: Buffer } | { kind: 'Finalize' } | { kind: 'CloseStream' });

export class Session {
  readonly #options: SessionOptions;
  readonly #abort = new AbortController();
  readonly #channels: Channel[];
  readonly #raw: RawInput | undefined;
  readonly #contained: ContainedInput | undefined;
  readonly #warnings = new Set<string>();
  readonly #queue: Message[] = [];
  readonly #began = performance.now();
  readonly #timer: NodeJS.Timeout;
  #queued = 0;
  #working = false;
  #ended = false;
  #stopped = false;
  #lastMessage = performance.now();
  #audioSince = { at: performance.now(), samples: 0 };
  /** Samples of one channel that were heard. */
  #samples = 0;
  #finalized = 0;
  #refused = false;
  /** Of messages that were worked on. */
  #bytes = 0;
  #told = { seconds: 0, bytes: 0 };

  constructor(options: SessionOptions) {
    this.#options = options;
    const { request, recognizer, contained, socket } = options;
    const channels = request.multichannel ? request.channels : 1;
    this.#channels = Array.from(
      { length: channels },
      (_, index) =>
        new Channel({
          index,
          channels,
          request,
          recognizer,
          signal: this.#abort.signal,
          say: (message) => this.#tell({ message }),
          warn: (warning) => this.#warnings.add(warning),
          failed: (error) => this.#fail(error),
        }),
    );
    if (request.raw) this.#raw = new RawInput(request.raw, request.multichannel);
    else if (contained)
      this.#contained = new ContainedInput({
        ...contained,
        channels,
        seconds: Math.ceil(request.maxBillableMs / 1000) + 1,
        heard: (samples) => this.#hear(samples),
      });
    this.#timer = setInterval(() => this.#look(), 250);
    socket.on('message', (data, isBinary) => this.#receive(data as Buffer, isBinary));
    socket.on('error', () => socket.terminate());
    socket.once('close', () => this.#stop());
  }

  /** The engine ends. */
  close(): void {
    this.#end(1011, 'NET-0000: the speech engine is restarting; open another stream');
  }

  #receive(data: Buffer, isBinary: boolean): void {
    if (this.#ended) return;
    this.#lastMessage = performance.now();
    const content = isBinary ? data : data.toString('utf8');
    const size = MESSAGE_BYTES + content.length;
    if (typeof content === 'string') this.#control(content, size);
    else if (data.length === 0) this.#put({ kind: 'CloseStream', size });
    else this.#put({ kind: 'audio', bytes: data, size });
  }

  #control(text: string, size: number): void {
    let type: unknown;
    try {
      type = (JSON.parse(text) as { type?: unknown } | null)?.type;
    } catch {
      type = undefined;
    }
    if (type === 'KeepAlive') this.#worked(size);
    else if (type === 'Finalize' || type === 'CloseStream') this.#put({ kind: type, size });
    else this.#end(1008, 'DATA-0001: send audio as binary and KeepAlive, Finalize or CloseStream as JSON');
  }

  #put(message: Message): void {
    this.#queue.push(message);
    this.#queued += message.size;
    if (this.#queued > MOST_WAITING_BYTES) this.#options.socket.pause();
    if (!this.#working) void this.#work();
  }

  async #work(): Promise<void> {
    this.#working = true;
    try {
      for (let message = this.#queue.shift(); message !== undefined && !this.#ended; message = this.#queue.shift()) {
        await this.#do(message);
        this.#queued -= message.size;
        this.#worked(message.size);
        if (this.#options.socket.isPaused && this.#queued < MOST_WAITING_BYTES / 2) this.#options.socket.resume();
      }
    } catch (error) {
      this.#fail(error);
    } finally {
      this.#working = false;
    }
  }

  async #do(message: Message): Promise<void> {
    switch (message.kind) {
      case 'audio':
        if (this.#raw) await this.#hear(this.#raw.push(message.bytes));
        else if (this.#contained) await this.#contained.push(message.bytes);
        else throw new EngineFailure('unsupported_audio', 'name encoding and sample_rate: containers need FFmpeg here');
        return;
      case 'Finalize':
        if (this.#samples - this.#finalized < LEAST_FINALIZED) return;
        this.#finalized = this.#samples;
        await Promise.all(this.#channels.map((channel) => channel.flush(true)));
        return;
      case 'CloseStream':
        await this.#contained?.end();
        await this.#finish(1000, 'the stream was closed');
    }
  }

  #worked(size: number): void {
    this.#bytes += size;
    if (this.#bytes - this.#told.bytes >= TELL_BYTES) this.#tell({});
  }

  /** The samples of each channel; no more of them than is paid for. */
  async #hear(samples: Int16Array[]): Promise<void> {
    if (this.#ended) return;
    const most = Math.floor((this.#options.request.maxBillableMs * RATE) / 1000 / this.#channels.length);
    const count = samples[0]?.length ?? 0;
    const taken = Math.min(count, most - this.#samples);
    this.#samples += taken;
    this.#audioSince.samples += taken;
    const seconds = Math.ceil(this.#heardMs() / 1000);
    if (seconds > this.#told.seconds) this.#tell({});
    await Promise.all(
      this.#channels.map((channel, index) => channel.push(samples[index]?.subarray(0, taken) ?? EMPTY)),
    );
    if (taken < count) await this.#finish(1000, 'PAYMENT-0001: what is held is used up; hold more with x-max-price');
  }

  /** Says what is left, and ends. */
  async #finish(code: number, reason: string): Promise<void> {
    await Promise.all(this.#channels.map((channel) => channel.flush(false)));
    this.#end(code, reason);
  }

  #heardMs(): number {
    return Math.ceil((this.#samples * this.#channels.length * 1000) / RATE);
  }

  #look(): void {
    const now = performance.now();
    // who is slower than its caller is not the caller's silence
    if (this.#working) this.#lastMessage = now;
    if (now - this.#began > LONGEST_MS) this.#end(1000, 'a stream lasts four hours at most; open another one');
    else if (now - this.#lastMessage > SILENT_MS) this.#end(1011, 'NET-0001: no audio and no KeepAlive came for 10 s');
    else if (now - this.#audioSince.at >= IDLE_MS) {
      if (this.#audioSince.samples < RATE) this.#end(1011, 'NET-0001: less than 1 s of audio came in a minute');
      this.#audioSince = { at: now, samples: 0 };
    }
  }

  #fail(error: unknown): void {
    if (this.#ended) return;
    const failure = asFailure(error);
    if (failure.code === 'unsupported_audio') {
      this.#refused = true;
      this.#end(1008, `DATA-0000: ${failure.message}`);
      return;
    }
    this.#options.log({ level: 50, msg: 'live stream', err: error instanceof Error ? error.stack : String(error) });
    this.#end(1011, 'NET-0000: the speech engine failed; open another stream');
  }

  #end(code: number, reason: string): void {
    if (this.#ended) return;
    const { length } = this.#channels;
    const warnings = [...this.#warnings];
    this.#tell({ end: { code, reason, duration: this.#samples / RATE, channels: length, warnings } });
    this.#stop();
    // read again: the other side's goodbye is behind what is not worked on any more
    this.#options.socket.resume();
    this.#options.socket.close(1000);
  }

  #stop(): void {
    if (this.#stopped) return;
    this.#stopped = true;
    this.#ended = true;
    this.#options.ended(this.#refused ? 'refused' : this.#samples > 0 ? 'heard' : 'neither');
    clearInterval(this.#timer);
    this.#abort.abort(new Error('the stream ended'));
    this.#queue.length = 0;
    for (const channel of this.#channels) channel.close();
    this.#contained?.close();
  }

  #tell(line: Omit<LiveLine, 'heardMs' | 'bytes'>): void {
    if (this.#ended) return;
    const { socket } = this.#options;
    if (socket.bufferedAmount > MOST_UNSENT_BYTES) {
      socket.terminate();
      return;
    }
    const heardMs = this.#heardMs();
    this.#told = { seconds: Math.ceil(heardMs / 1000), bytes: this.#bytes };
    socket.send(JSON.stringify({ heardMs, bytes: this.#bytes, ...line } satisfies LiveLine));
  }
}

const EMPTY = new Int16Array(0);
