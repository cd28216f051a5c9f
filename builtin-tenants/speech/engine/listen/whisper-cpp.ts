/**
 * whisper.cpp's command line program with a ggml model that the operator gives: many languages, punctuation, good accuracy.
 */
import { readFile, stat } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { z } from 'zod';
import { runChild } from '../child.ts';
import { EngineFailure } from '../failure.ts';
import { findProgram } from '../programs.ts';
import { bareWord, type HeardWord, type Transcriber, whisperLanguage, whisperWarnings } from './transcriber.ts';

/** Written by `--output-json-full` (examples/cli/cli.cpp, output_json). Tokens may be without times of their own. */
const offsets = z.object({ from: z.number(), to: z.number() });
const outputSchema = z.object({
  result: z.object({ language: z.string() }).partial().optional(),
  transcription: z.array(
    z.object({
      offsets,
      tokens: z.array(z.object({ text: z.string(), offsets: offsets.optional(), p: z.number() })),
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
      const spoken = englishOnly ? 'en' : (whisperLanguage(language) ?? 'auto');
      const { code } = await runChild({
        program: path,
        args: ['-m', model, '-f', file, '-l', spoken, '-t', String(threads), '-ojf', '-of', result, '-np'],
        cwd: folder,
        signal,
        timeoutMs,
      });
      const text = code === 0 ? await readFile(`${result}.json`, 'latin1').catch(() => undefined) : undefined;
      if (text === undefined) throw new EngineFailure('internal', 'whisper.cpp failed; the audio was not transcribed.');
      return { ...parseWhisperCpp(text), warnings: englishOnly ? [] : whisperWarnings(language) };
    },
  };
}

/**
 * Tokens become words: a token that begins with a space begins a word; `[_BEG_]` and its like are marks.
 * @param json each character one byte: a token may hold half of a character, so only whole words are UTF-8
 */
export function parseWhisperCpp(json: string): { words: HeardWord[]; language?: string } {
  const { result, transcription } = outputSchema.parse(JSON.parse(json));
  const words: { bytes: string; start: number; end: number; confidences: number[] }[] = [];
  for (const segment of transcription) {
    let inWord = false;
    for (const token of segment.tokens) {
      const piece = token.text.trim();
      if (/^\[_.*\]$/.test(piece) || piece === '') continue;
      const { from, to } = token.offsets ?? segment.offsets;
      const current = words.at(-1);
      if (!inWord || current === undefined || token.text.startsWith(' ')) {
        words.push({ bytes: piece, start: from / 1000, end: to / 1000, confidences: [token.p] });
      } else {
        current.bytes += piece;
        current.end = to / 1000;
        current.confidences.push(token.p);
      }
      inWord = true;
    }
  }
  const heard = words.map(({ bytes, start, end, confidences }) => {
    const punctuated = Buffer.from(bytes, 'latin1').toString('utf8');
    const confidence = confidences.reduce((sum, p) => sum + p, 0) / confidences.length;
    return { word: bareWord(punctuated), punctuated, start, end, confidence };
  });
  const spoken = result?.language === undefined ? {} : { language: result.language };
  return { words: heard.filter(({ word }) => word !== ''), ...spoken };
}
