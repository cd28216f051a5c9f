/**
 * sherpa-onnx's command line program with a folder that holds one of its published models: transducer, whisper,
 * paraformer, SenseVoice or a CTC model. Which one is told by the files in the folder.
 */
import { readdir } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { z } from 'zod';
import { runChild } from '../child.ts';
import { EngineFailure } from '../failure.ts';
import { findProgram } from '../programs.ts';
import { bareWord, type HeardWord, type Transcriber } from './transcriber.ts';

/** One line of JSON per file (sherpa-onnx 1.10-1.13, OfflineRecognitionResult::AsJsonString). */
const resultSchema = z.object({
  text: z.string(),
  tokens: z.array(z.string()).default([]),
  timestamps: z.array(z.number()).default([]),
  lang: z.string().default(''),
  /** Not every model has them. */
  ys_log_probs: z.array(z.number()).default([]),
});

/** @throws Error that says what is missing */
export async function openSherpaOnnx(folder: string, program: string, threads: number): Promise<Transcriber> {
  const path = await findProgram(program || 'sherpa-onnx-offline');
  if (path === undefined) throw new Error('sherpa-onnx: the program sherpa-onnx-offline was not found');
  const files = await readdir(folder).catch(() => {
    throw new Error(`sherpa-onnx: no model folder at ${folder}`);
  });
  const model = modelArguments(folder, files);
  return {
    model: basename(folder),
    arch: 'sherpa-onnx',
    version: model.kind,
    languages: undefined,
    punctuates: model.kind === 'whisper' || model.kind === 'sense-voice',
    detectsLanguage: model.kind === 'whisper' || model.kind === 'sense-voice',
    async transcribe({ file, folder: cwd, language, durationMs, signal, timeoutMs }) {
      const spoken = model.kind === 'whisper' && language ? [`--whisper-language=${language.split('-')[0]}`] : [];
      const args = [...model.args, ...spoken, `--num-threads=${threads}`, file];
      const { code, stdout, stderr } = await runChild({ program: path, args, cwd, signal, timeoutMs });
      if (code !== 0) throw new EngineFailure('internal', 'sherpa-onnx failed; the audio was not transcribed.');
      return parseSherpaOnnx(`${stdout}\n${stderr}`, durationMs);
    },
  };
}

/** The names are those of the models' own archives. Quantized files are taken where both are there. */
export function modelArguments(folder: string, files: string[]): { kind: string; args: string[] } {
  const find = (pattern: RegExp) => {
    const matches = files.filter((file) => pattern.test(file) && file.endsWith('.onnx'));
    return matches.find((file) => file.includes('int8')) ?? matches[0];
  };
  const tokens = files.find((file) => /tokens\.txt$/.test(file));
  if (tokens === undefined) throw new Error('sherpa-onnx: the model folder has no tokens.txt');
  const at = (name: string) => join(folder, name);
  const shared = `--tokens=${at(tokens)}`;
  const [encoder, decoder, joiner, single] = [find(/encoder/), find(/decoder/), find(/joiner/), find(/model/)];
  if (encoder && decoder && joiner) {
    const args = [shared, `--encoder=${at(encoder)}`, `--decoder=${at(decoder)}`, `--joiner=${at(joiner)}`];
    return { kind: 'transducer', args };
  }
  if (encoder && decoder) {
    return { kind: 'whisper', args: [shared, `--whisper-encoder=${at(encoder)}`, `--whisper-decoder=${at(decoder)}`] };
  }
  if (single === undefined) throw new Error('sherpa-onnx: the model folder has no model that is known here');
  const name = basename(folder);
  if (/sense-?voice/i.test(name)) return { kind: 'sense-voice', args: [shared, `--sense-voice-model=${at(single)}`] };
  if (/paraformer/i.test(name)) return { kind: 'paraformer', args: [shared, `--paraformer=${at(single)}`] };
  if (/zipformer/i.test(name)) return { kind: 'zipformer-ctc', args: [shared, `--zipformer-ctc-model=${at(single)}`] };
  return { kind: 'nemo-ctc', args: [shared, `--nemo-ctc-model=${at(single)}`] };
}

/** A token that begins with a space or U+2581 begins a word; a word ends where the next token starts. */
export function parseSherpaOnnx(output: string, durationMs: number): { words: HeardWord[]; language?: string } {
  const line = output.split('\n').find((candidate) => candidate.trimStart().startsWith('{"'));
  if (line === undefined) throw new EngineFailure('internal', 'sherpa-onnx gave no result.');
  const result = resultSchema.parse(JSON.parse(line));
  const language = result.lang.replace(/[<|>]/g, '');
  const spoken = language === '' ? {} : { language };
  const duration = durationMs / 1000;
  if (result.timestamps.length !== result.tokens.length || result.tokens.length === 0) {
    return { words: spread(result.text, duration), ...spoken };
  }
  const words: (HeardWord & { logProbabilities: number[] })[] = [];
  result.tokens.forEach((token, index) => {
    const start = result.timestamps[index] ?? 0;
    const end = result.timestamps[index + 1] ?? Math.min(duration, start + 0.3);
    const logProbabilities = result.ys_log_probs.slice(index, index + 1);
    const current = words.at(-1);
    if (current === undefined || /^[\s\u2581]/.test(token)) {
      const punctuated = token.replace(/^[\s\u2581]+/, '');
      words.push({ word: '', punctuated, start, end, confidence: 1, logProbabilities });
    } else {
      current.punctuated += token;
      current.end = end;
      current.logProbabilities.push(...logProbabilities);
    }
  });
  const spelled = words.map(({ logProbabilities, ...word }) => {
    const mean = logProbabilities.reduce((sum, value) => sum + value, 0) / Math.max(1, logProbabilities.length);
    return { ...word, word: bareWord(word.punctuated ?? ''), confidence: Math.min(1, Math.exp(mean)) };
  });
  return { words: spelled.filter(({ word }) => word !== ''), ...spoken };
}

/** Models without times: words are laid out evenly, which is said in the answer's warnings. */
function spread(text: string, duration: number): HeardWord[] {
  const pieces = text.split(/\s+/).filter((piece) => bareWord(piece) !== '');
  const each = duration / Math.max(1, pieces.length);
  return pieces.map((punctuated, index) => ({
    word: bareWord(punctuated),
    punctuated,
    start: index * each,
    end: (index + 1) * each,
    confidence: 1,
  }));
}
