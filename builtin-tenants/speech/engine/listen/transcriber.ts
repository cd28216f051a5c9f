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

/** A word as dictionaries spell it. */
export function bareWord(text: string): string {
  return text
    .toLowerCase()
    .replace(/^[^\p{L}\p{N}]+|[^\p{L}\p{N}]+$/gu, '')
    .trim();
}
