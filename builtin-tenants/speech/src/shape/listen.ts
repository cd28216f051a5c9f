/**
 * Puts what was heard into Deepgram's shape: channels, alternatives, words, utterances and paragraphs.
 * Pure: times and ids come from outside.
 */
import type { Transcript, Word } from '../engines/engine.ts';
import type { ListenOptions } from '../options/listen.ts';
import { writeNumbers } from './numbers.ts';
import { replaceTerms, type SearchResult, searchTerms } from './terms.ts';

export interface WireWord {
  word: string;
  start: number;
  end: number;
  confidence: number;
  punctuated_word?: string;
  speaker?: number;
}

export interface Utterance {
  start: number;
  end: number;
  confidence: number;
  channel: number;
  transcript: string;
  words: WireWord[];
  speaker?: number;
  id: string;
}

export interface ListenResults {
  channels: {
    search?: SearchResult[];
    alternatives: Record<string, unknown>[];
    detected_language?: string;
    language_confidence?: number;
  }[];
  utterances?: Utterance[];
  [insight: string]: unknown;
}

const PARAGRAPH_GAP_SECONDS = 1.5;
const PARAGRAPH_SENTENCES = 5;
/** Engines without punctuation: a pause of this length ends a sentence. */
const SENTENCE_GAP_SECONDS = 0.5;

/** @param newId for utterances */
export function shapeResults(transcript: Transcript, options: ListenOptions, newId: () => string): ListenResults {
  const { punctuates } = transcript;
  const isWritten = wantsPunctuation(options) && (punctuates || options.smartFormat);
  const wires = transcript.channels.map(({ words }) =>
    formatted(words, options, transcript.language).map((word) => wireWord(word, isWritten)),
  );
  const channels = wires.map((wire, index) => {
    const alternative = {
      transcript: textOf(wire),
      confidence: confidenceOf(wire),
      words: wire,
      ...(options.paragraphs || options.smartFormat ? { paragraphs: shapeParagraphs(wire, punctuates) } : {}),
    };
    const detected =
      options.detectLanguage && detectsLanguage(transcript) ? { detected_language: transcript.language ?? '' } : {};
    const heard = transcript.channels[index]?.words ?? [];
    const search = options.search.length === 0 ? {} : { search: searchTerms(heard, options.search) };
    return { ...search, alternatives: [alternative], ...detected };
  });
  if (!options.utterances) return { channels };
  const utterances = wires
    .flatMap((wire, channel) =>
      splitAtPauses(wire, options.utteranceSplit).map((group) => ({
        start: group[0]?.start ?? 0,
        end: group.at(-1)?.end ?? 0,
        confidence: confidenceOf(group),
        channel,
        transcript: textOf(group),
        words: group,
        ...speakerOf(group),
        id: newId(),
      })),
    )
    .sort((a, b) => a.start - b.start);
  return { channels, utterances };
}

/** The transcript as sentences, for those who read it: pauses end sentences where the engine hears no punctuation. */
export function readableText(transcript: Transcript): string {
  return transcript.channels
    .map(({ words }) => {
      if (transcript.punctuates) return words.map((word) => word.punctuated ?? word.word).join(' ');
      const wire = words.map((word) => wireWord(word, false));
      return splitAtPauses(wire, SENTENCE_GAP_SECONDS)
        .map((group) => sentenceCase(textOf(group)))
        .join(' ');
    })
    .join(' ')
    .trim();
}

/** What is replaced, and numbers in digits: the same for whole files and live. @param heard language */
export function formatted(words: Word[], options: ListenOptions, heard: string | undefined): Word[] {
  const replaced = options.replace.length === 0 ? words : replaceTerms(words, options.replace);
  if (!(options.numerals || options.smartFormat) || !isEnglish(options, heard)) return replaced;
  return writeNumbers(replaced, options.smartFormat ? 'smart' : 'plain');
}

export function isEnglish({ language }: ListenOptions, heard: string | undefined): boolean {
  const spoken = language === undefined || language === 'multi' ? heard : language;
  return /^en(g|glish)?(-|$)/i.test(spoken ?? 'en');
}

/** Of options that work, how far they do: by words of text alone, and in English. */
export function formatWarnings(options: ListenOptions, heard: string | undefined): string[] {
  const foreign = isEnglish(options, heard) ? [] : ['numerals', 'smart_format'];
  const asked = { numerals: options.numerals, smart_format: options.smartFormat };
  return [
    ...foreign
      .filter((name) => asked[name as keyof typeof asked])
      .map((name) => `${name}: numbers are put into digits in English only`),
    ...(options.search.length === 0 ? [] : ['search: found by exact words, not by sound']),
  ];
}

/** Pocketsphinx says what its model hears, which is the same whatever is spoken. */
export function detectsLanguage({ language, model }: Transcript): boolean {
  return language !== undefined && model.arch !== 'pocketsphinx';
}

/** Whether any word says who said it: of what nobody said there is nothing to tell. */
export function tellsSpeakers({ channels }: Transcript): boolean {
  const words = channels.flatMap((channel) => channel.words);
  return words.length === 0 || words.some(({ speaker }) => speaker !== undefined);
}

export function wantsPunctuation(options: ListenOptions): boolean {
  return options.punctuate || options.smartFormat || options.paragraphs;
}

export function wireWord(word: Word, written: boolean): WireWord {
  const base = {
    word: word.word,
    start: rounded(word.start),
    end: rounded(word.end),
    confidence: rounded(word.confidence),
    ...(word.speaker === undefined ? {} : { speaker: word.speaker }),
  };
  return written ? { ...base, punctuated_word: word.punctuated ?? word.word } : base;
}

function textOf(words: WireWord[]): string {
  return words.map((word) => word.punctuated_word ?? word.word).join(' ');
}

function confidenceOf(words: WireWord[]): number {
  if (words.length === 0) return 0;
  return rounded(words.reduce((sum, word) => sum + word.confidence, 0) / words.length);
}

function splitAtPauses(words: WireWord[], seconds: number): WireWord[][] {
  const groups: WireWord[][] = [];
  for (const word of words) {
    const group = groups.at(-1);
    const previous = group?.at(-1);
    const isSame = previous !== undefined && word.speaker === previous.speaker;
    if (group === undefined || !isSame || word.start - previous.end >= seconds) groups.push([word]);
    else group.push(word);
  }
  return groups;
}

/** Groups are of one speaker. */
function speakerOf([first]: WireWord[]): { speaker?: number } {
  return first?.speaker === undefined ? {} : { speaker: first.speaker };
}

function shapeParagraphs(words: WireWord[], punctuates: boolean) {
  const paragraphs: WireWord[][][] = [];
  for (const sentence of sentencesOf(words, punctuates)) {
    const paragraph = paragraphs.at(-1);
    const previous = paragraph?.at(-1)?.at(-1);
    const pause = (sentence[0]?.start ?? 0) - (previous?.end ?? 0);
    const isSame = sentence[0]?.speaker === previous?.speaker;
    if (
      !isSame ||
      paragraph === undefined ||
      paragraph.length >= PARAGRAPH_SENTENCES ||
      pause >= PARAGRAPH_GAP_SECONDS
    ) {
      paragraphs.push([sentence]);
    } else paragraph.push(sentence);
  }
  const shaped = paragraphs.map((sentences) => ({
    sentences: sentences.map((sentence) => ({
      text: textOf(sentence),
      start: sentence[0]?.start ?? 0,
      end: sentence.at(-1)?.end ?? 0,
    })),
    num_words: sentences.reduce((sum, sentence) => sum + sentence.length, 0),
    ...speakerOf(sentences[0] ?? []),
    start: sentences[0]?.[0]?.start ?? 0,
    end: sentences.at(-1)?.at(-1)?.end ?? 0,
  }));
  const text = shaped
    .map(({ sentences, speaker }) => {
      const said = sentences.map((sentence) => sentence.text).join(' ');
      return speaker === undefined ? said : `Speaker ${speaker}: ${said}`;
    })
    .join('\n\n');
  return { transcript: text, paragraphs: shaped };
}

function sentencesOf(words: WireWord[], punctuates: boolean): WireWord[][] {
  if (!punctuates) return splitAtPauses(words, SENTENCE_GAP_SECONDS);
  const sentences: WireWord[][] = [[]];
  for (const word of words) {
    const before = sentences.at(-1)?.at(-1);
    if (before !== undefined && before.speaker !== word.speaker) sentences.push([]);
    sentences.at(-1)?.push(word);
    if (/[.!?]["')\]]*$/.test(word.punctuated_word ?? '')) sentences.push([]);
  }
  return sentences.filter((sentence) => sentence.length > 0);
}

function sentenceCase(text: string): string {
  return text === '' ? '' : `${text.charAt(0).toUpperCase()}${text.slice(1)}.`;
}

function rounded(value: number): number {
  return Number(value.toFixed(6));
}
