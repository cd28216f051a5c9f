/**
 * Audio in a container, as it comes: FFmpeg reads it from its standard input and writes samples, confined as for files.
 * Which demuxer may open it is told by the first bytes.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { type Container, recognizeContainer } from '../audio/container.ts';
import { endProgram, lowerPriority, watchMemory } from '../child.ts';
import type { Confine } from '../confine.ts';
import { EngineFailure } from '../failure.ts';
import { RawInput } from './raw-input.ts';

const RATE = 16_000;
/** Enough to tell a container by. */
const HEAD_BYTES = 64;
const MEMORY_BYTES = 256 * 1024 * 1024;
/** MP4 is read from its end. */
const NOT_STREAMED = new Set(['mov']);
/** Of audio without a sound, such as the picture that many files begin with. */
const MOST_SILENT_BYTES = 8 * 1024 * 1024;
/** How long the decoder may be silent when the audio has ended, ms. */
const DRAIN_MS = 5_000;

export interface ContainedOptions {
  ffmpeg: string;
  confine: Confine;
  /** Folder of this stream, the only one that the decoder sees. */
  folder: string;
  /** 1, or as many as are kept apart. */
  channels: number;
  /** Longest audio, seconds. */
  seconds: number;
  /** Samples of each channel, in order; the decoder waits until it resolves. */
  heard(samples: Int16Array[]): Promise<void>;
}

export class ContainedInput {
  readonly #options: ContainedOptions;
  #head: Buffer = Buffer.alloc(0);
  #child: ChildProcess | undefined;
  #watch: NodeJS.Timeout | undefined;
  #reading: Promise<void> = Promise.resolve();
  #failure: unknown;
  #ending = false;
  #late: NodeJS.Timeout | undefined;
  #isLate = false;
  #bytes = 0;
  #sounds = false;

  constructor(options: ContainedOptions) {
    this.#options = options;
  }

  /** @throws EngineFailure unsupported_audio */
  async push(bytes: Buffer): Promise<void> {
    if (this.#failure !== undefined) throw this.#failure;
    this.#bytes += bytes.length;
    if (!this.#sounds && this.#bytes > MOST_SILENT_BYTES) throw notAudio();
    if (this.#child === undefined) {
      this.#head = Buffer.concat([this.#head, bytes]);
      if (this.#head.length < HEAD_BYTES) return;
      this.#start(this.#head);
      return this.#write(this.#head);
    }
    await this.#write(bytes);
  }

  /** What is left is heard. @throws EngineFailure unsupported_audio: no sound came of it */
  async end(): Promise<void> {
    if (this.#child === undefined) {
      if (this.#head.length > 0) throw notAudio();
      return;
    }
    this.#child.stdin?.end();
    this.#ending = true;
    this.#await();
    await this.#reading.finally(() => clearTimeout(this.#late));
    if (this.#failure !== undefined) throw this.#failure;
  }

  close(): void {
    clearInterval(this.#watch);
    clearTimeout(this.#late);
    if (this.#child) endProgram(this.#child);
  }

  /** The next samples come soon, or none do. */
  #await(): void {
    if (!this.#ending) return;
    this.#late = setTimeout(() => {
      this.#isLate = true;
      if (this.#child) endProgram(this.#child);
    }, DRAIN_MS);
  }

  async #write(bytes: Buffer): Promise<void> {
    const stdin = this.#child?.stdin;
    if (!stdin || stdin.destroyed) throw this.#failure ?? notAudio();
    if (stdin.write(bytes)) return;
    const { signal, stop } = eitherOnce();
    await Promise.race([once(stdin, 'drain', { signal }), once(stdin, 'close', { signal })]).finally(stop);
  }

  #start(head: Buffer): void {
    const container = recognizeContainer(head);
    if (container === undefined || NOT_STREAMED.has(container.demuxer)) throw notAudio();
    const { ffmpeg, confine, folder, channels, seconds } = this.#options;
    const { program, args } = confine(
      { program: ffmpeg, args: liveFfmpegArguments(container, channels, seconds) },
      folder,
    );
    const child = spawn(program, args, {
      cwd: folder,
      env: { PATH: '/usr/local/bin:/usr/bin:/bin', HOME: folder, LC_ALL: 'C.UTF-8' },
      stdio: ['pipe', 'pipe', 'ignore'],
      detached: true,
    });
    this.#child = child;
    lowerPriority(child.pid);
    // its end is what counts
    child.stdin.on('error', () => {});
    child.on('error', () => {});
    this.#watch = watchMemory(child.pid, MEMORY_BYTES, (failure) => {
      this.#failure = failure;
      endProgram(child);
    });
    const ended = once(child, 'close').catch(() => []);
    this.#reading = this.#read(child, ended).catch((error: unknown) => {
      this.#failure ??= error;
      endProgram(child);
    });
  }

  async #read(child: ChildProcess, ended: Promise<unknown[]>): Promise<void> {
    const { channels, heard } = this.#options;
    const samples = new RawInput({ encoding: 'linear16', sampleRate: RATE, channels }, true);
    for await (const chunk of child.stdout ?? []) {
      // what takes its time now is not the decoder
      clearTimeout(this.#late);
      const parts = samples.push(chunk as Buffer);
      this.#sounds ||= (parts[0]?.length ?? 0) > 0;
      await heard(parts);
      this.#await();
    }
    const [code] = await ended;
    clearInterval(this.#watch);
    if (!this.#sounds || (code !== 0 && !this.#isLate)) throw notAudio();
  }
}

function notAudio(): EngineFailure {
  return new EngineFailure('unsupported_audio', 'the payload cannot be decoded as audio');
}

function eitherOnce(): { signal: AbortSignal; stop: () => void } {
  const controller = new AbortController();
  return { signal: controller.signal, stop: () => controller.abort() };
}

/** As for files, but that it reads and writes as it goes. */
export function liveFfmpegArguments(container: Container, channels: number, seconds: number): string[] {
  return [
    ...['-nostdin', '-hide_banner', '-v', 'error', '-max_alloc', String(64 * 1024 * 1024), '-threads', '1'],
    ...['-protocol_whitelist', 'pipe', '-fflags', 'nobuffer', '-probesize', '4096', '-analyzeduration', '0'],
    ...['-f', container.demuxer, '-i', 'pipe:0', '-map', '0:a:0', '-vn', '-sn', '-dn', '-map_metadata', '-1'],
    ...['-t', String(seconds), '-ac', String(channels), '-ar', String(RATE), '-c:a', 'pcm_s16le', '-threads', '1'],
    ...['-flush_packets', '1', '-f', 's16le', 'pipe:1'],
  ];
}
