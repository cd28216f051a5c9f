/**
 * CMU PocketSphinx as Debian packages it (pocketsphinx, pocketsphinx-en-us 0.8+5prealpha): small, offline, English only.
 * Its accuracy on human speech is low; it exists so that a fresh box can transcribe at all.
 */
import { stat } from 'node:fs/promises';
import { runChild } from '../child.ts';
import { EngineFailure } from '../failure.ts';
import { findProgram } from '../programs.ts';
import type { HeardWord, Transcriber } from './transcriber.ts';

/** Where Debian's pocketsphinx-en-us puts the model that the program loads by itself. */
const MODEL = '/usr/share/pocketsphinx/model/en-us/en-us/mdef';

/** @returns undefined where the program or its model is not installed */
export async function findPocketsphinx(program = ''): Promise<Transcriber | undefined> {
  const path = await findProgram(program || 'pocketsphinx_continuous');
  const model = await stat(MODEL).catch(() => undefined);
  if (path === undefined || model === undefined) return undefined;
  return {
    model: 'pocketsphinx-en-us',
    arch: 'pocketsphinx',
    version: '5prealpha',
    languages: ['en', 'en-US'],
    punctuates: false,
    detectsLanguage: false,
    async transcribe({ file, folder, signal, timeoutMs }) {
      const { code, stdout } = await runChild({
        program: path,
        // without noise removal synthetic voices are heard better, and others no worse
        args: ['-infile', file, '-time', 'yes', '-remove_noise', 'no', '-logfn', '/dev/null'],
        cwd: folder,
        signal,
        timeoutMs,
      });
      if (code !== 0) throw new EngineFailure('internal', 'pocketsphinx failed; the audio was not transcribed.');
      return { words: parsePocketsphinx(stdout), language: 'en' };
    },
  };
}

/** Lines are `word start end confidence`; sentence marks, silence and noise are in brackets, `(2)` is a pronunciation. */
export function parsePocketsphinx(output: string): HeardWord[] {
  const words: HeardWord[] = [];
  for (const line of output.split('\n')) {
    const match = /^(\S+) (\d+\.\d+) (\d+\.\d+) (\d+\.\d+)$/.exec(line.trim());
    if (match === null) continue;
    const [, spelled = '', start, end, confidence] = match;
    if (/^[<[+]/.test(spelled)) continue;
    words.push({
      word: spelled.replace(/\(\d+\)$/, ''),
      start: Number(start),
      end: Number(end),
      confidence: Math.min(1, Number(confidence)),
    });
  }
  return words;
}
