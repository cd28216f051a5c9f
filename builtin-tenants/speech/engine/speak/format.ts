/**
 * Audio formats that can be asked for, with the names and ranges of Deepgram's speak API
 * (https://developers.deepgram.com/docs/tts-media-output-settings).
 */
import { EngineFailure } from '../failure.ts';

export interface SpeechFormat {
  encoding: 'mp3' | 'linear16' | 'mulaw' | 'alaw';
  container: 'none' | 'wav';
  /** Samples a second; undefined: as the voice is made. */
  sampleRate: number | undefined;
  /** Bits a second, MP3 only. */
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
    default:
      throw unsupported('encoding', encoding, ['mp3', 'linear16', 'mulaw', 'alaw']);
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

function unsupported(option: string, value: string | number, allowed: (string | number)[]): EngineFailure {
  return new EngineFailure(
    'unsupported_option',
    `${option}=${value} is not available from this engine; choose ${allowed.join(', ')}.`,
  );
}
