/**
 * Models of sherpa-onnx that help whichever recognizer hears: two that tell speakers apart (where somebody speaks, and
 * whose voice it is), one that punctuates. They are installed as other models are, and loaded for each job that asks for
 * them, in a process of its own (helper-job.ts).
 */
import { randomUUID } from 'node:crypto';
import { existsSync, readdirSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { runChild } from '../child.ts';
import { EngineFailure } from '../failure.ts';
import { lastLine } from '../native-process.ts';
import type { HelperJob, HelperResult, Segment } from './helper-job.ts';
import type { HeardWord } from './transcriber.ts';

export type HelperKind = 'segments' | 'recognizes voices' | 'punctuates';

export interface HelperModel {
  /** Of its folder or file. */
  name: string;
  kind: HelperKind;
  path: string;
}

const NAMES: [HelperKind, RegExp][] = [
  ['segments', /segmentation/i],
  ['punctuates', /punct-ct-transformer/i],
  // a file alone: 3dspeaker_…, wespeaker_…, nemo_…titanet…
  ['recognizes voices', /\.onnx$/i],
];
const JOB = fileURLToPath(new URL('helper-job.ts', import.meta.url));
/** Below it, voices are one speaker's: sherpa-onnx's own default. */
const SAME_VOICE = 0.5;

/** Told by the names of published ones; undefined: it hears or speaks. */
export function helperKind(name: string): HelperKind | undefined {
  return NAMES.find(([, pattern]) => pattern.test(name))?.[0];
}

/** @throws Error that says what is missing */
export function describeHelper(place: string): HelperModel {
  const name = basename(place);
  const kind = helperKind(name);
  if (kind === undefined) throw new Error(`sherpa-onnx: ${name} is no model that helps a recognizer`);
  if (!existsSync(place)) throw new Error(`sherpa-onnx: no model at ${place}`);
  if (kind === 'recognizes voices') return { name, kind, path: place };
  return { name, kind, path: join(place, helperFile(name, readdirSync(place))) };
}

/** @throws Error that says what is missing */
export function helperFile(name: string, files: string[]): string {
  const models = files.filter((file) => /^model.*\.onnx$/.test(file));
  const file = models.find((one) => one.includes('int8')) ?? models[0];
  if (file === undefined) throw new Error(`sherpa-onnx: the model in ${name} has no model.onnx`);
  return file;
}

export interface HelpJob {
  /** 16 kHz WAV of the channel. */
  file: string;
  folder: string;
  signal: AbortSignal;
  timeoutMs: number;
}

export class Helpers {
  readonly #models: HelperModel[];

  /** @param models of each kind the first is used */
  constructor(models: HelperModel[]) {
    this.#models = models;
  }

  get names(): string[] {
    return this.#models.map(({ name }) => name);
  }

  get punctuates(): boolean {
    return this.#path('punctuates') !== undefined;
  }

  get tellsSpeakers(): boolean {
    return this.#path('segments') !== undefined && this.#path('recognizes voices') !== undefined;
  }

  /** @throws EngineFailure internal, and what running a program throws */
  async help(words: HeardWord[], wants: { speakers: boolean; marks: boolean }, job: HelpJob): Promise<HeardWord[]> {
    const [segmentation, embedding, punctuation] = (['segments', 'recognizes voices', 'punctuates'] as const).map(
      (kind) => this.#path(kind),
    );
    const work: HelperJob = {
      ...(wants.speakers && segmentation && embedding
        ? { speakers: { file: job.file, segmentation, embedding, threshold: SAME_VOICE } }
        : {}),
      ...(wants.marks && punctuation
        ? { marks: { model: punctuation, text: words.map(({ word }) => word).join(' ') } }
        : {}),
    };
    if (words.length === 0 || Object.keys(work).length === 0) return words;
    const { segments, text } = await runHelper(work, job);
    return withSpeakers(text === undefined ? words : withMarks(words, text), segments ?? []);
  }

  #path(kind: HelperKind): string | undefined {
    return this.#models.find((model) => model.kind === kind)?.path;
  }
}

/** @throws EngineFailure internal, whose cause is what the program said */
export async function runHelper(work: HelperJob, job: Omit<HelpJob, 'file'>): Promise<HelperResult> {
  const { folder: cwd, signal, timeoutMs } = job;
  // an argument may not be as long as the transcript of an hour
  const file = join(cwd, `help-${randomUUID()}.json`);
  await writeFile(file, JSON.stringify(work), { mode: 0o600 });
  const args = ['--max-old-space-size=1024', JOB, file];
  const { code, stdout, stderr } = await runChild({ program: process.execPath, args, cwd, signal, timeoutMs });
  const line = stdout.split('\n').find((one) => one.startsWith('{"'));
  if (code === 0 && line !== undefined) return JSON.parse(line) as HelperResult;
  const failure = new EngineFailure('internal', 'A model that helps the recognizer failed; nothing was charged.');
  failure.cause = lastLine(stderr);
  throw failure;
}

/** Each word is said by whoever speaks for most of it, or nearest to it. */
export function withSpeakers(words: HeardWord[], segments: Segment[]): HeardWord[] {
  if (segments.length === 0) return words;
  return words.map((word) => {
    const distance = ({ start, end }: Segment) => Math.max(start, word.start) - Math.min(end, word.end);
    const nearest = segments.reduce((best, one) => (distance(one) < distance(best) ? one : best));
    return { ...word, speaker: nearest.speaker };
  });
}

const MARKS: Record<string, string> = { '，': ',', '。': '.', '？': '?', '、': ',' };

/**
 * @param text the same words with marks between them, spaces aside
 * @returns the words as they were where the text has others
 */
export function withMarks(words: HeardWord[], text: string): HeardWord[] {
  const rest = [...text.replace(/\s+/g, '')];
  let begins = true;
  const written: HeardWord[] = [];
  for (const word of words) {
    const letters = [...word.word];
    const said = rest.splice(0, letters.length);
    if (said.join('').toLowerCase() !== word.word.toLowerCase()) return words;
    let marks = '';
    for (let mark = MARKS[rest[0] ?? '']; mark !== undefined; mark = MARKS[rest[0] ?? '']) {
      marks += mark;
      rest.shift();
    }
    const [first = '', ...others] = letters;
    written.push({ ...word, punctuated: `${begins ? first.toUpperCase() : first}${others.join('')}${marks}` });
    begins = /[.?]$/.test(marks);
  }
  return written;
}
