/**
 * sherpa-onnx with a folder that holds one of its published models: transducer, whisper, paraformer, SenseVoice or a CTC
 * model. Which one is told by the files in the folder and by its name. Its command line program does it where it is
 * installed, else its package for Node, in a process of ours for each job (sherpa-onnx-job.ts): either way native code
 * never runs in the engine's own process.
 */
import { readdir } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { basename, dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { z } from 'zod';
import { runChild } from '../child.ts';
import { EngineFailure } from '../failure.ts';
import { lastLine } from '../native-process.ts';
import { findProgram } from '../programs.ts';
import { type SherpaOnnxJob, UNLOADABLE } from './sherpa-onnx-wire.ts';
import {
  bareWord,
  type HeardWord,
  type Transcriber,
  type Transcription,
  whisperLanguage,
  whisperWarnings,
} from './transcriber.ts';

/** A line of JSON (sherpa-onnx 1.10-1.13, OfflineRecognitionResult::AsJsonString). */
const resultSchema = z.object({
  text: z.string(),
  tokens: z.array(z.string()).default([]),
  timestamps: z.array(z.number()).default([]),
  lang: z.string().default(''),
  /** Not every model has them: CTC models have none. */
  ys_log_probs: z.array(z.number()).default([]),
  /** Where the piece of audio lies that this line is about, seconds: only our own program works by pieces. */
  from: z.number().optional(),
  to: z.number().optional(),
});
type Result = z.output<typeof resultSchema>;

export interface SherpaOnnxModel {
  kind: Kind | StreamingKind;
  /** It hears as the audio comes; only the package runs such models here. */
  streams: boolean;
  /** Path of the list of tokens. */
  tokens: string;
  /** Path of each part, such as `encoder`. */
  parts: Record<string, string>;
}

/**
 * What the parts of a model are called: `flags` by the program (offline-*-config.cc), `group` by the package, whose
 * parts are called as here (types.js).
 */
const KINDS = {
  transducer: { group: 'transducer', flags: { encoder: 'encoder', decoder: 'decoder', joiner: 'joiner' } },
  whisper: { group: 'whisper', flags: { encoder: 'whisper-encoder', decoder: 'whisper-decoder' } },
  'sense-voice': { group: 'senseVoice', flags: { model: 'sense-voice-model' } },
  paraformer: { group: 'paraformer', flags: { model: 'paraformer' } },
  'zipformer-ctc': { group: 'zipformerCtc', flags: { model: 'zipformer-ctc-model' } },
  'nemo-ctc': { group: 'nemoCtc', flags: { model: 'nemo-ctc-model' } },
} as const satisfies Record<string, { group: string; flags: Record<string, string> }>;
export type Kind = keyof typeof KINDS;

/** What the package calls the kinds of models that stream (OnlineModelConfig). */
const STREAMING = {
  transducer: 'transducer',
  paraformer: 'paraformer',
  'zipformer-ctc': 'zipformer2Ctc',
  'nemo-ctc': 'nemoCtc',
  't-one-ctc': 'toneCtc',
} as const;
export type StreamingKind = keyof typeof STREAMING;

export interface SherpaOnnxOptions {
  /** Threads of one job. */
  threads: number;
  /** BCP 47; only whisper is told it. */
  language?: string | undefined;
}

/** What runs for one job. */
type Command = (options: SherpaOnnxOptions, file: string) => { program: string; args: string[] };

const LONGEST_TOKEN_SECONDS = 0.3;
export const PACKAGE = 'sherpa-onnx-node';
const JOB = fileURLToPath(new URL('sherpa-onnx-job.ts', import.meta.url));
/** A model of a gigabyte is read from a slow disk in less. */
const TRIAL_MS = 60_000;

/** @throws Error that says what is missing, or why the model cannot be loaded */
export async function openSherpaOnnx(folder: string, program: string, threads: number): Promise<Transcriber> {
  if (folder === '') throw new Error('sherpa-onnx: speech.listenModel names no model folder');
  // jobs run in another folder
  const place = resolve(folder);
  const files = await readdir(place).catch(() => {
    throw new Error(`sherpa-onnx: no model folder at ${folder}`);
  });
  const model = describeModel(place, files);
  const command = await findRecognizer(model, program, threads);
  return {
    model: basename(place),
    arch: 'sherpa-onnx',
    version: model.streams ? `streaming-${model.kind}` : model.kind,
    languages: undefined,
    punctuates: model.kind === 'whisper' || model.kind === 'sense-voice',
    detectsLanguage: model.kind === 'whisper' || model.kind === 'sense-voice',
    async transcribe({ file, folder: cwd, language, durationMs, signal, timeoutMs }) {
      const job = { ...command({ threads, language }, file), cwd, signal, timeoutMs };
      const { code, stdout, stderr } = await runChild(job);
      if (code !== 0) {
        const failure = new EngineFailure('internal', 'sherpa-onnx failed; the audio was not transcribed.');
        failure.cause = lastLine(stderr);
        throw failure;
      }
      const heard = parseSherpaOnnx(`${stdout}\n${stderr}`, durationMs);
      const warnings = [...(model.kind === 'whisper' ? whisperWarnings(language) : []), ...(heard.warnings ?? [])];
      return { ...heard, warnings };
    },
  };
}

/**
 * For the package, which keeps the model loaded.
 * @returns undefined where the package is not installed
 * @throws Error as `describeModel`
 */
export async function describeModelIn(folder: string): Promise<SherpaOnnxModel | undefined> {
  if (!isInstalled(PACKAGE)) return undefined;
  const place = resolve(folder);
  return describeModel(place, await readdir(place));
}

/** The program where it is installed, or where one was named; else the package, once it has loaded the model. */
async function findRecognizer(model: SherpaOnnxModel, program: string, threads: number): Promise<Command> {
  if (model.streams && program !== '')
    throw new Error('sherpa-onnx: a streaming model is run by the package; leave speech.listenProgram empty');
  const path = model.streams ? undefined : await findProgram(program || 'sherpa-onnx-offline');
  if (path !== undefined) {
    return (options, file) => ({ program: path, args: [...modelArguments(model, options), file] });
  }
  if (program !== '') throw new Error('sherpa-onnx: the program that speech.listenProgram names was not found');
  if (!isInstalled(PACKAGE)) throw new Error(NEITHER);
  const folder = dirname(model.tokens);
  const name = basename(folder);
  const { code, stderr } = await runChild({
    ...jobCommand(jobOf(model, { threads })),
    cwd: tmpdir(),
    signal: new AbortController().signal,
    timeoutMs: TRIAL_MS,
  }).catch(() => {
    throw new Error(`sherpa-onnx: the model in ${name} was not loaded within ${TRIAL_MS / 1000} s`);
  });
  if (code === 0) return (options, file) => jobCommand({ ...jobOf(model, options), file });
  if (code === UNLOADABLE) throw new Error(NEITHER);
  const reason = lastLine(stderr).replaceAll(`${folder}/`, '');
  throw new Error(`sherpa-onnx: the model in ${name} cannot be loaded as ${model.kind}: ${reason}`);
}

const NEITHER = `sherpa-onnx: neither the program sherpa-onnx-offline nor the package ${PACKAGE} was found for this system; install the program, or the optional packages of the host (npm install)`;

export function isInstalled(name: string): boolean {
  try {
    createRequire(import.meta.url).resolve(name);
    return true;
  } catch {
    return false;
  }
}

function jobCommand(job: SherpaOnnxJob): { program: string; args: string[] } {
  return { program: process.execPath, args: ['--max-old-space-size=256', '--expose-gc', JOB, JSON.stringify(job)] };
}

/**
 * The names are those of the models' own archives. Quantized files are taken where both are there.
 * @throws Error that says what is missing
 */
export function describeModel(folder: string, files: string[]): SherpaOnnxModel {
  const find = (pattern: RegExp) => {
    const matches = files.filter((file) => pattern.test(file) && file.endsWith('.onnx'));
    const file = matches.find((name) => name.includes('int8')) ?? matches[0];
    return file === undefined ? undefined : join(folder, file);
  };
  const list = files.find((file) => /tokens\.txt$/.test(file));
  if (list === undefined) throw new Error('sherpa-onnx: the model folder has no tokens.txt');
  const tokens = join(folder, list);
  const [encoder, decoder, joiner, model] = [find(/encoder/), find(/decoder/), find(/joiner/), find(/model/)];
  const name = basename(folder);
  // so are all published ones called
  const streams = /streaming/i.test(name);
  const parts = { ...(encoder && { encoder }), ...(decoder && { decoder }), ...(joiner && { joiner }) };
  if (encoder && decoder && joiner) return { kind: 'transducer', streams, tokens, parts };
  if (encoder && decoder) return { kind: streams ? 'paraformer' : 'whisper', streams, tokens, parts };
  const only = model ?? (streams ? find(/./) : undefined);
  if (only === undefined) throw new Error('sherpa-onnx: the model folder has no model that is known here');
  const kind = streams ? streamingKindOfName(name) : kindOfName(name);
  return { kind, streams, tokens, parts: { model: only } };
}

function streamingKindOfName(name: string): StreamingKind {
  if (/t-one/i.test(name)) return 't-one-ctc';
  return /nemo|conformer/i.test(name) && !/zipformer/i.test(name) ? 'nemo-ctc' : 'zipformer-ctc';
}

function kindOfName(name: string): Kind {
  if (/sense-?voice/i.test(name)) return 'sense-voice';
  if (/paraformer/i.test(name)) return 'paraformer';
  return /zipformer/i.test(name) ? 'zipformer-ctc' : 'nemo-ctc';
}

/** What the program is told of a model; the audio file follows. */
export function modelArguments(model: SherpaOnnxModel, { threads, language }: SherpaOnnxOptions): string[] {
  const flags: Record<string, string> = KINDS[model.kind as Kind].flags;
  const spoken = model.kind === 'whisper' ? whisperLanguage(language) : undefined;
  return [
    `--tokens=${model.tokens}`,
    ...Object.entries(model.parts).map(([part, path]) => `--${flags[part]}=${path}`),
    ...(spoken === undefined ? [] : [`--whisper-language=${spoken}`]),
    `--num-threads=${threads}`,
  ];
}

/** The same for the package: an OfflineRecognizerConfig of its types.js, or an OnlineRecognizerConfig. */
export function jobOf(model: SherpaOnnxModel, { threads, language }: SherpaOnnxOptions): Omit<SherpaOnnxJob, 'file'> {
  const spoken = model.kind === 'whisper' ? whisperLanguage(language) : undefined;
  const group = model.streams ? STREAMING[model.kind as StreamingKind] : KINDS[model.kind as Kind].group;
  return {
    streams: model.streams,
    config: {
      modelConfig: {
        [group]: { ...model.parts, ...(spoken === undefined ? {} : { language: spoken }) },
        tokens: model.tokens,
        numThreads: threads,
      },
    },
  };
}

/**
 * Reads what the program, or ours, writes: a line of JSON for the audio or for each piece of it.
 * @throws EngineFailure internal: no result
 */
export function parseSherpaOnnx(output: string, durationMs: number): Transcription {
  const duration = durationMs / 1000;
  const lines = output.split('\n').filter((line) => line.trimStart().startsWith('{"'));
  if (lines.length === 0) throw new EngineFailure('internal', 'sherpa-onnx gave no result.');
  const results = lines.map((line) => resultSchema.parse(JSON.parse(line)));
  const words = results.flatMap((result) => wordsOf(result, duration));
  const language = results.map(({ lang }) => lang.replace(/[<|>]/g, '')).find((lang) => lang !== '');
  const spoken = results.filter(({ text }) => bareWord(text) !== '');
  const warnings = [
    ...(spoken.some((result) => !hasTimes(result))
      ? ['start: the model gives no times; words are laid out evenly']
      : []),
    ...(spoken.some((result) => result.ys_log_probs.length === 0)
      ? ['confidence: the model gives none; 1 stands for unknown']
      : []),
  ];
  return { words, ...(language === undefined ? {} : { language }), ...(warnings.length === 0 ? {} : { warnings }) };
}

function hasTimes({ tokens, timestamps }: Result): boolean {
  return tokens.length > 0 && timestamps.length === tokens.length;
}

/**
 * A token that begins with a space or U+2581 begins a word. A word ends where the next token starts, but no later than a
 * token lasts: models tell where tokens begin, and a pause belongs to no word.
 */
function wordsOf(result: Result, duration: number): HeardWord[] {
  const { from = 0, to = duration } = result;
  if (!hasTimes(result)) return spread(result.text, from, to);
  const words: (HeardWord & { logProbabilities: number[] })[] = [];
  result.tokens.forEach((token, index) => {
    const start = Math.min(to, from + (result.timestamps[index] ?? 0));
    const next = from + (result.timestamps[index + 1] ?? Number.POSITIVE_INFINITY);
    const end = Math.max(start, Math.min(next, to, start + LONGEST_TOKEN_SECONDS));
    const logProbabilities = result.ys_log_probs.slice(index, index + 1);
    const current = words.at(-1);
    if (current === undefined || /^[\s\u2581]/.test(token)) {
      const punctuated = token.replace(/^[\s\u2581]+/, '');
      words.push({ word: '', punctuated, start, end, confidence: 1, logProbabilities });
    } else {
      // a space alone has no sound: the word begins with its first letter
      if (current.punctuated === '') current.start = start;
      current.punctuated += token;
      current.end = end;
      current.logProbabilities.push(...logProbabilities);
    }
  });
  const spelled = words.map(({ logProbabilities, ...word }) => {
    const mean = logProbabilities.reduce((sum, value) => sum + value, 0) / Math.max(1, logProbabilities.length);
    return { ...word, word: bareWord(word.punctuated ?? ''), confidence: Math.min(1, Math.exp(mean)) };
  });
  return spelled.filter(({ word }) => word !== '');
}

/** Models without times: words are laid out evenly, which is said in the answer's warnings. */
function spread(text: string, from: number, to: number): HeardWord[] {
  const pieces = text.split(/\s+/).filter((piece) => bareWord(piece) !== '');
  const each = (to - from) / Math.max(1, pieces.length);
  return pieces.map((punctuated, index) => ({
    word: bareWord(punctuated),
    punctuated,
    start: from + index * each,
    end: from + (index + 1) * each,
    confidence: 1,
  }));
}
