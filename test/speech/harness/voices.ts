/**
 * The test's voices (test/speech/model/voices) as published ones are packed: with the folder espeak-ng-data, which here
 * comes out of the package that speaks without a model.
 */
import { cpSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

export const PIPER = 'vits-piper-en_US-tones-low';
export const PIPER_GERMAN = 'vits-piper-de_DE-tones-low';
export const KOKORO = 'kokoro-en-tones';

const VOICES = fileURLToPath(new URL('../model/voices', import.meta.url));
/** What English and German need of it. */
const NEEDED = /\/(phon[a-z]+|intonations|en_dict|de_dict|lang\/gmw\/(en.*|de))$/;

/** @returns the folder of the voice, in `folder` */
export function packVoice(name: string, folder: string): string {
  const voice = join(folder, name);
  cpSync(join(VOICES, name), voice, { recursive: true });
  const program = createRequire(import.meta.url).resolve('@echogarden/espeak-ng-emscripten');
  const data = readFileSync(join(dirname(program), 'espeak-ng.data'));
  const entry = /filename:"\/usr\/share\/(espeak-ng-data\/[^"]+)",start:(\d+),end:(\d+)/g;
  for (const [, path = '', start, end] of readFileSync(program, 'utf8').matchAll(entry)) {
    if (!NEEDED.test(path)) continue;
    const file = join(voice, path);
    mkdirSync(dirname(file), { recursive: true });
    writeFileSync(file, data.subarray(Number(start), Number(end)));
  }
  return voice;
}
