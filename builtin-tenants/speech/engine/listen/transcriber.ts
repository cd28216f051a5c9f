/**
 * What every local recognizer does: one mono 16 kHz WAV file in, words with times out.
 */

export interface HeardWord {
  /** As a dictionary spells it: lower case, no punctuation. */
  word: string;
  /** Seconds from the start of the audio. */
  start: number;
  end: number;
  /** 0 to 1. */
  confidence: number;
  /** With case and punctuation, where the engine hears them. */
  punctuated?: string;
  /** From 0, where speakers were told apart. */
  speaker?: number;
}

export interface TranscribeJob {
  file: string;
  folder: string;
  durationMs: number;
  /** BCP 47, such as `en` or `pt-BR`; undefined: the engine's own, or detected. */
  language: string | undefined;
  signal: AbortSignal;
  timeoutMs: number;
}

export interface Transcription {
  words: HeardWord[];
  /** What was spoken, where the engine tells. */
  language?: string;
  /** What it could not tell, such as `confidence: the model gives none; 1 stands for unknown`. */
  warnings?: string[];
}

export interface Transcriber {
  /** Such as `pocketsphinx-en-us`. */
  model: string;
  arch: string;
  version: string;
  /** Languages it hears; undefined: what the model was trained on is not known here. */
  languages: string[] | undefined;
  punctuates: boolean;
  detectsLanguage: boolean;
  transcribe(job: TranscribeJob): Promise<Transcription>;
}

const WHISPER_LANGUAGES = new Set(
  'en zh de es ru ko fr ja pt tr pl ca nl ar sv it id hi fi vi he uk el ms cs ro da hu ta no th ur hr bg lt la mi ml cy sk te fa lv bn sr az sl kn et mk br eu is hy ne mn bs kk sq sw gl mr pa si km sn yo so af oc ka be tg sd gu am yi lo uz fo ht ps tk nn mt sa lb my bo tl mg as tt haw ln ha ba jw su yue'.split(
    ' ',
  ),
);

/**
 * What whisper is told of a language. Given one that it does not have, its programs end without a transcript.
 * @param asked BCP 47; `multi` is Deepgram's word for several
 * @returns undefined: it finds out by itself
 */
export function whisperLanguage(asked: string | undefined): string | undefined {
  const primary = asked?.split('-')[0]?.toLowerCase();
  return primary !== undefined && WHISPER_LANGUAGES.has(primary) ? primary : undefined;
}

/** Says it where a language was asked for that whisper does not have. */
export function whisperWarnings(asked: string | undefined): string[] {
  if (asked === undefined || asked === 'multi' || whisperLanguage(asked) !== undefined) return [];
  return [`language=${asked}: whisper has no such language; it was detected`];
}

/** A word as dictionaries spell it. */
export function bareWord(text: string): string {
  return text
    .toLowerCase()
    .replace(/^[^\p{L}\p{N}]+|[^\p{L}\p{N}]+$/gu, '')
    .trim();
}
