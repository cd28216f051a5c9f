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
  maxChannels: number;
  timeoutMs: number;
}

export interface DecodedAudio {
  /** One WAV file per channel. */
  files: string[];
  /** Of one channel. */
  durationMs: number;
}

const MEMORY_BYTES = 512 * 1024 * 1024;
const PORTABLE = fileURLToPath(new URL('portable-decoder.ts', import.meta.url));
const ENGINE = fileURLToPath(new URL('..', import.meta.url));
/** The project's packages, and its package.json, which says how its sources are to be read. */
const LIBRARIES = ['node_modules', 'package.json'].map((name) =>
  fileURLToPath(new URL(`../../../../${name}`, import.meta.url)),
);

export class Decoder {
  readonly #ffmpeg: string | undefined;
  readonly #confine: Confine;

  /** @param ffmpeg path of the program; undefined: decode without it */
  constructor(ffmpeg: string | undefined, confine: Confine) {
    this.#ffmpeg = ffmpeg;
    this.#confine = confine;
  }

  get name(): string {
    return this.#ffmpeg === undefined ? 'audio-decode' : 'ffmpeg';
  }

  /** @throws EngineFailure unsupported_audio, too_long, timeout */
  async decode(audio: SpooledAudio, options: DecodeOptions, signal: AbortSignal): Promise<DecodedAudio> {
    const container = recognizeContainer(audio.head, options.raw !== undefined);
    if (container === undefined && options.raw === undefined) {
      throw new EngineFailure(
        'unsupported_audio',
        'This is not audio that can be decoded: send WAV, MP3, FLAC, Ogg, Opus, AAC, M4A, MP4, WebM, AIFF, CAF or AMR, or name encoding and sample_rate of raw samples.',
      );
    }
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

  #command(
    audio: SpooledAudio,
    container: Container | undefined,
    output: string,
    options: DecodeOptions,
  ): { program: string; args: string[] } {
    const seconds = options.maxSeconds + 1;
    if (this.#ffmpeg !== undefined) {
      return { program: this.#ffmpeg, args: ffmpegArguments(audio.path, container, output, options, seconds) };
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
    });
    return { program: process.execPath, args: ['--max-old-space-size=256', PORTABLE, job] };
  }
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
