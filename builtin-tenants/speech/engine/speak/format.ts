/**
 * Audio formats that can be asked for, with the names and ranges of Deepgram's speak API
 * (https://developers.deepgram.com/docs/tts-media-output-settings).
 */
import { EngineFailure } from '../failure.ts';

/** Made by FFmpeg, where it is installed. */
export type FfmpegEncoding = 'flac' | 'opus' | 'aac';

export interface SpeechFormat {
  encoding: 'mp3' | 'linear16' | 'mulaw' | 'alaw' | FfmpegEncoding;
  container: 'none' | 'wav' | 'ogg';
  /** Samples a second; undefined: as the voice is made. */
  sampleRate: number | undefined;
  /** Bits a second, of MP3, Opus and AAC. */
  bitRate: number;
  contentType: string;
}

export interface FormatRequest {
  encoding?: string | undefined;
  container?: string | undefined;
  sampleRate?: number | undefined;
  bitRate?: number | undefined;
}

/** By bit rate: at 32 kbit/s LAME makes 22,050 samples of 24,000, whatever it is asked for. */
export const MP3_SAMPLE_RATES = new Map([
  [32_000, [16_000, 22_050]],
  [48_000, [16_000, 22_050, 24_000]],
]);
export const LINEAR_SAMPLE_RATES = [8000, 16_000, 22_050, 24_000, 32_000, 44_100, 48_000];
export const TELEPHONE_SAMPLE_RATES = [8000, 16_000];
export const FLAC_SAMPLE_RATES = [8000, 16_000, 22_050, 32_000, 48_000];
/** Of one channel; Deepgram takes up to 650,000, which libopus has for more channels only. */
export const OPUS_BIT_RATES = { least: 4000, most: 256_000 };
export const AAC_BIT_RATES = { least: 4000, most: 192_000 };

export function byFfmpeg(format: SpeechFormat): format is SpeechFormat & { encoding: FfmpegEncoding } {
  return ['flac', 'opus', 'aac'].includes(format.encoding);
}

export function needsFfmpeg(encoding: string): EngineFailure {
  return new EngineFailure(
    'unsupported_option',
    `encoding=${encoding} needs FFmpeg, which this host does not have; choose mp3, linear16, mulaw or alaw. The operator can install it (Debian’s package ffmpeg).`,
  );
}

/** @throws EngineFailure unsupported_option that names what is possible */
export function chooseFormat(request: FormatRequest): SpeechFormat {
  const encoding = request.encoding ?? 'mp3';
  switch (encoding) {
    case 'mp3': {
      const bitRate = oneOf('bit_rate', request.bitRate ?? 48_000, [...MP3_SAMPLE_RATES.keys()]);
      const rates = MP3_SAMPLE_RATES.get(bitRate) ?? [];
      const sampleRate = request.sampleRate === undefined ? undefined : oneOf('sample_rate', request.sampleRate, rates);
      container(request, ['none']);
      return { encoding, container: 'none', sampleRate, bitRate, contentType: 'audio/mpeg' };
    }
    case 'linear16': {
      const sampleRate = oneOf('sample_rate', request.sampleRate ?? 24_000, LINEAR_SAMPLE_RATES);
      const wrapper = container(request, ['wav', 'none']);
      const contentType = wrapper === 'wav' ? 'audio/wav' : `audio/l16;rate=${sampleRate};channels=1`;
      return { encoding, container: wrapper, sampleRate, bitRate: 0, contentType };
    }
    case 'mulaw':
    case 'alaw': {
      const sampleRate = oneOf('sample_rate', request.sampleRate ?? 8000, TELEPHONE_SAMPLE_RATES);
      const wrapper = container(request, ['none', 'wav']);
      const bare = encoding === 'mulaw' ? `audio/basic;rate=${sampleRate}` : `audio/PCMA;rate=${sampleRate}`;
      const contentType = wrapper === 'wav' ? 'audio/wav' : bare;
      return { encoding, container: wrapper, sampleRate, bitRate: 0, contentType };
    }
    case 'flac': {
      const sampleRate = oneOf('sample_rate', request.sampleRate ?? 48_000, FLAC_SAMPLE_RATES);
      return { encoding, container: container(request, ['none']), sampleRate, bitRate: 0, contentType: 'audio/flac' };
    }
    case 'opus': {
      const sampleRate = oneOf('sample_rate', request.sampleRate ?? 48_000, [48_000]);
      const bitRate = between('bit_rate', request.bitRate ?? 12_000, OPUS_BIT_RATES);
      const contentType = 'audio/ogg;codecs=opus';
      return { encoding, container: container(request, ['ogg']), sampleRate, bitRate, contentType };
    }
    case 'aac': {
      const sampleRate = oneOf('sample_rate', request.sampleRate ?? 22_050, [22_050]);
      const bitRate = between('bit_rate', request.bitRate ?? 48_000, AAC_BIT_RATES);
      return { encoding, container: container(request, ['none']), sampleRate, bitRate, contentType: 'audio/aac' };
    }
    default:
      throw unsupported('encoding', encoding, ['mp3', 'linear16', 'mulaw', 'alaw', 'flac', 'opus', 'aac']);
  }
}

function container<const Allowed extends SpeechFormat['container']>(
  request: FormatRequest,
  allowed: Allowed[],
): Allowed {
  if (request.container === undefined) {
    const [first] = allowed;
    if (first !== undefined) return first;
  }
  const found = allowed.find((name) => name === request.container);
  if (found === undefined) throw unsupported('container', request.container ?? '', allowed);
  return found;
}

function oneOf(option: string, value: number, allowed: number[]): number {
  if (!allowed.includes(value)) throw unsupported(option, value, allowed);
  return value;
}

function between(option: string, value: number, { least, most }: { least: number; most: number }): number {
  if (value < least || value > most) throw unsupported(option, value, [`${least} to ${most}`]);
  return value;
}

function unsupported(option: string, value: string | number, allowed: (string | number)[]): EngineFailure {
  return new EngineFailure(
    'unsupported_option',
    `${option}=${value} is not available from this engine; choose ${allowed.join(', ')}.`,
  );
}
