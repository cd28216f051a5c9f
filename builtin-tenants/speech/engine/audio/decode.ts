/**
 * Turns whatever was sent into 16 kHz 16-bit WAV files, one per channel that is to be transcribed, and measures it.
 * FFmpeg does it where it is installed, else JavaScript and WebAssembly decoders in a process of their own.
 */
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { runChild } from '../child.ts';
import type { Confine } from '../confine.ts';
import { EngineFailure } from '../failure.ts';
import type { SpooledAudio } from '../spool.ts';
import { type Container, RAW_DEMUXERS, type RawFormat, recognizeContainer } from './container.ts';
import { extractChannel, readWavFacts } from './wav.ts';

export const SAMPLE_RATE = 16_000;

export interface DecodeOptions {
  /** Keep channels apart; else they are mixed into one. */
  multichannel: boolean;
  /** What headerless audio is said to be. */
  raw: RawFormat | undefined;
  maxSeconds: number;
  /** What is paid for, over all channels. No more than that and a second is decoded. */
  maxBillableMs: number | undefined;
  maxChannels: number;
  timeoutMs: number;
}

export interface DecodedAudio {
  /** One WAV file per channel. */
  files: string[];
  /** Of one channel. */
  durationMs: number;
}

/** Paths of the programs. */
export interface Ffmpeg {
  ffmpeg: string;
  ffprobe: string;
}

/** What a file says of itself. */
interface Claims {
  sampleRate: number;
  channels: number;
  seconds: number | undefined;
}

/** Of all channels together: eight at 48 kHz. A file of a megabyte can hold an hour of silence at far more. */
const MOST_SAMPLES_A_SECOND = 8 * 48_000;
const PROBE_MS = 10_000;
const MEMORY_BYTES = 512 * 1024 * 1024;
const PORTABLE = fileURLToPath(new URL('portable-decoder.ts', import.meta.url));
const ENGINE = fileURLToPath(new URL('..', import.meta.url));
/** The project's packages, and its package.json, which says how its sources are to be read. */
const LIBRARIES = ['node_modules', 'package.json'].map((name) =>
  fileURLToPath(new URL(`../../../../${name}`, import.meta.url)),
);

export class Decoder {
  readonly #ffmpeg: Ffmpeg | undefined;
  readonly #confine: Confine;

  /** @param ffmpeg undefined: decode without it */
  constructor(ffmpeg: Ffmpeg | undefined, confine: Confine) {
    this.#ffmpeg = ffmpeg;
    this.#confine = confine;
  }

  get name(): string {
    return this.#ffmpeg === undefined ? 'audio-decode' : 'ffmpeg';
  }

  /** @throws EngineFailure unsupported_audio, too_long, too_large, too_expensive with `billableMs`, timeout */
  async decode(audio: SpooledAudio, options: DecodeOptions, signal: AbortSignal): Promise<DecodedAudio> {
    const container = recognizeContainer(audio.head, options.raw !== undefined);
    if (container === undefined && options.raw === undefined) {
      throw new EngineFailure(
        'unsupported_audio',
        'This is not audio that can be decoded: send WAV, MP3, FLAC, Ogg, Opus, AAC, M4A, MP4, WebM, AIFF, CAF or AMR, or name encoding and sample_rate of raw samples.',
      );
    }
    const claims = await this.#probe(audio, container, options, signal);
    if (claims !== undefined) refuseWide(claims);
    const output = join(audio.folder, 'decoded.wav');
    const { code } = await runChild({
      ...this.#confine(this.#command(audio, container, output, options), audio.folder, this.#needs()),
      cwd: audio.folder,
      signal,
      timeoutMs: options.timeoutMs,
      memoryBytes: MEMORY_BYTES,
    });
    const facts = code === 0 ? await readWavFacts(output) : undefined;
    if (facts === undefined || facts.frames === 0) {
      throw new EngineFailure('unsupported_audio', 'The audio is corrupt, or holds no sound that can be decoded.');
    }
    if (facts.frames > options.maxSeconds * facts.sampleRate) {
      throw new EngineFailure('too_long', `The audio is longer than ${options.maxSeconds} s; send it in parts.`);
    }
    if (facts.channels > options.maxChannels) {
      throw new EngineFailure('too_large', `The audio has ${facts.channels} channels; at most ${options.maxChannels}.`);
    }
    const durationMs = Math.round((facts.frames * 1000) / facts.sampleRate);
    const billableMs = durationMs * facts.channels;
    if (options.maxBillableMs !== undefined && billableMs > options.maxBillableMs) {
      throw tooExpensive(billableMs, facts.channels, options, claims);
    }
    if (facts.channels === 1) return { files: [output], durationMs };
    const files: string[] = [];
    for (let channel = 0; channel < facts.channels; channel++) {
      signal.throwIfAborted();
      const file = join(audio.folder, `channel-${channel}.wav`);
      await extractChannel(output, file, { ...facts, channel });
      files.push(file);
    }
    return { files, durationMs };
  }

  /** What the decoder reads beside the system's own files. */
  #needs(): string[] {
    return this.#ffmpeg === undefined ? [process.execPath, ENGINE, ...LIBRARIES] : [];
  }

  /** Reads headers only. @throws EngineFailure unsupported_audio */
  async #probe(
    audio: SpooledAudio,
    container: Container | undefined,
    { raw }: DecodeOptions,
    signal: AbortSignal,
  ): Promise<Claims | undefined> {
    if (container === undefined) return raw && { ...raw, seconds: undefined };
    if (this.#ffmpeg === undefined) return undefined;
    const { code, stdout } = await runChild({
      ...this.#confine({ program: this.#ffmpeg.ffprobe, args: ffprobeArguments(audio.path, container) }, audio.folder),
      cwd: audio.folder,
      signal,
      timeoutMs: PROBE_MS,
      memoryBytes: MEMORY_BYTES,
      maxOutputBytes: 65_536,
    });
    const claims = code === 0 ? readClaims(stdout) : undefined;
    if (claims === undefined) {
      throw new EngineFailure('unsupported_audio', 'The audio is corrupt, or holds no sound that can be decoded.');
    }
    return claims;
  }

  #command(
    audio: SpooledAudio,
    container: Container | undefined,
    output: string,
    options: DecodeOptions,
  ): { program: string; args: string[] } {
    const seconds = secondsOf(options);
    if (this.#ffmpeg !== undefined) {
      return { program: this.#ffmpeg.ffmpeg, args: ffmpegArguments(audio.path, container, output, options, seconds) };
    }
    if (container !== undefined && container.portable === undefined) {
      throw new EngineFailure('unsupported_audio', `${container.name} audio needs ffmpeg on this host.`);
    }
    const job = JSON.stringify({
      input: audio.path,
      output,
      format: container?.portable,
      raw: container === undefined ? options.raw : undefined,
      multichannel: options.multichannel,
      seconds,
      samplesASecond: MOST_SAMPLES_A_SECOND,
    });
    return { program: process.execPath, args: ['--max-old-space-size=256', PORTABLE, job] };
  }
}

/** @throws EngineFailure too_large: more samples a second than are taken */
export function refuseWide({ sampleRate, channels }: { sampleRate: number; channels: number }): void {
  if (sampleRate * channels <= MOST_SAMPLES_A_SECOND) return;
  throw new EngineFailure(
    'too_large',
    `The audio has ${channels} channels of ${sampleRate} Hz; send at most 8 of 48000 Hz, 4 of 96000, or 2 of 192000.`,
  );
}

function secondsOf({ maxSeconds, maxBillableMs }: DecodeOptions): number {
  return Math.min(maxSeconds, Math.ceil((maxBillableMs ?? Number.POSITIVE_INFINITY) / 1000)) + 1;
}

/** What all of it costs: as it claims where it was not decoded to its end, or the longest that is taken. */
function tooExpensive(
  decodedMs: number,
  channels: number,
  options: DecodeOptions,
  claims: Claims | undefined,
): EngineFailure {
  const { maxSeconds } = options;
  const isWhole = decodedMs < secondsOf(options) * 1000 * channels;
  const seconds = claims?.seconds ?? maxSeconds;
  if (!isWhole && seconds > maxSeconds) {
    return new EngineFailure('too_long', `The audio is longer than ${maxSeconds} s; send it in parts.`);
  }
  const billableMs = isWhole ? decodedMs : Math.max(decodedMs, Math.ceil(seconds * 1000) * channels);
  const length = (billableMs / 1000).toFixed(3);
  const known = isWhole || claims?.seconds !== undefined;
  const sentence = known ? `The audio is ${length} s long.` : `The audio may be ${length} s long.`;
  return new EngineFailure('too_expensive', sentence, { billableMs });
}

function readClaims(text: string): Claims | undefined {
  const { streams, format } = JSON.parse(text) as {
    streams?: { sample_rate?: string; channels?: number }[];
    format?: { duration?: string };
  };
  const [stream] = streams ?? [];
  if (stream === undefined) return undefined;
  const seconds = Number(format?.duration);
  return {
    sampleRate: Number(stream.sample_rate ?? 0),
    channels: stream.channels ?? 0,
    seconds: seconds > 0 ? seconds : undefined,
  };
}

/** As `ffmpegArguments`: one demuxer, local files, bounded allocations. */
export function ffprobeArguments(input: string, container: Container): string[] {
  return [
    ...['-hide_banner', '-v', 'error', '-max_alloc', String(64 * 1024 * 1024)],
    ...['-protocol_whitelist', 'file,pipe', '-f', container.demuxer, '-probesize', '5000000'],
    ...['-select_streams', 'a:0', '-show_entries', 'stream=sample_rate,channels:format=duration', '-of', 'json'],
    `file:${input}`,
  ];
}

/**
 * The demuxer is forced, only local files can be opened (no network, no nested lists), one thread, no single
 * allocation over 64 MB, and the output ends after `seconds` whatever the header claims.
 */
export function ffmpegArguments(
  input: string,
  container: Container | undefined,
  output: string,
  options: Pick<DecodeOptions, 'multichannel' | 'raw'>,
  seconds: number,
): string[] {
  const { raw } = options;
  const source =
    container !== undefined
      ? ['-f', container.demuxer]
      : raw !== undefined
        ? ['-f', RAW_DEMUXERS[raw.encoding], '-ar', String(raw.sampleRate), '-ac', String(raw.channels)]
        : [];
  return [
    ...['-nostdin', '-hide_banner', '-v', 'error', '-max_alloc', String(64 * 1024 * 1024), '-threads', '1'],
    ...['-protocol_whitelist', 'file,pipe', ...source, '-i', `file:${input}`],
    ...['-map', '0:a:0', '-vn', '-sn', '-dn', '-map_metadata', '-1', '-t', String(seconds)],
    ...(options.multichannel ? [] : ['-ac', '1']),
    ...['-ar', String(SAMPLE_RATE), '-c:a', 'pcm_s16le', '-threads', '1', '-bitexact', '-f', 'wav', `file:${output}`],
  ];
}
