/**
 * whisper.cpp's command line program with a ggml model that the operator gives: many languages, punctuation, good accuracy.
 */
import { readFile, stat } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { z } from 'zod';
import { runChild } from '../child.ts';
import { EngineFailure } from '../failure.ts';
import { findProgram } from '../programs.ts';
import { bareWord, type HeardWord, type Transcriber } from './transcriber.ts';

/** Written by `--output-json-full` (whisper.cpp 1.7, examples/cli/cli.cpp, output_json). */
const outputSchema = z.object({
  result: z.object({ language: z.string() }).partial().optional(),
  transcription: z.array(
    z.object({
      tokens: z.array(
        z.object({ text: z.string(), offsets: z.object({ from: z.number(), to: z.number() }), p: z.number() }),
      ),
    }),
  ),
});

/** @throws Error that says what is missing */
export async function openWhisperCpp(model: string, program: string, threads: number): Promise<Transcriber> {
  const path = await findProgram(program || 'whisper-cli', 'whisper-cpp', 'whisper.cpp');
  if (path === undefined) throw new Error('whisper.cpp: the program whisper-cli was not found');
  if (!(await stat(model).catch(() => undefined))?.isFile()) throw new Error(`whisper.cpp: no model file at ${model}`);
  const name = basename(model).replace(/\.(bin|gguf)$/, '');
  const englishOnly = /\.en(\b|$)/.test(name);
  return {
    model: name,
    arch: 'whisper',
    version: 'ggml',
    languages: englishOnly ? ['en'] : undefined,
    punctuates: true,
    detectsLanguage: !englishOnly,
    async transcribe({ file, folder, language, signal, timeoutMs }) {
      const result = join(folder, 'whisper');
      const spoken = englishOnly ? 'en' : (language?.split('-')[0] ?? 'auto');
      const { code } = await runChild({
        program: path,
        args: ['-m', model, '-f', file, '-l', spoken, '-t', String(threads), '-ojf', '-of', result, '-np'],
        cwd: folder,
        signal,
        timeoutMs,
      });
      const text = code === 0 ? await readFile(`${result}.json`, 'utf8').catch(() => undefined) : undefined;
      if (text === undefined) throw new EngineFailure('internal', 'whisper.cpp failed; the audio was not transcribed.');
      return parseWhisperCpp(text);
    },
  };
}

/** Tokens become words: a token that begins with a space begins a word; `[_BEG_]` and its like are marks. */
export function parseWhisperCpp(json: string): { words: HeardWord[]; language?: string } {
  const { result, transcription } = outputSchema.parse(JSON.parse(json));
  const words: (HeardWord & { pieces: number })[] = [];
  for (const { tokens } of transcription) {
    let inWord = false;
    for (const token of tokens) {
      if (/^\[_.*\]$/.test(token.text)) continue;
      const current = words.at(-1);
      const begins = !inWord || token.text.startsWith(' ');
      const piece = token.text.trim();
      if (piece === '') continue;
      if (begins || current === undefined) {
        const start = token.offsets.from / 1000;
        words.push({
          word: '',
          punctuated: piece,
          start,
          end: token.offsets.to / 1000,
          confidence: token.p,
          pieces: 1,
        });
      } else {
        current.punctuated += piece;
        current.end = token.offsets.to / 1000;
        current.confidence += token.p;
        current.pieces++;
      }
      inWord = true;
    }
  }
  const spelled = words
    .map(({ pieces, ...word }) => ({
      ...word,
      word: bareWord(word.punctuated ?? ''),
      confidence: word.confidence / pieces,
    }))
    .filter(({ word }) => word !== '');
  return { words: spelled, ...(result?.language === undefined ? {} : { language: result.language }) };
}
