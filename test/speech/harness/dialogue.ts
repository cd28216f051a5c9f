/** A conversation of two, spoken by flite: what tells speakers apart has something to tell. */
import { spawnSync } from 'node:child_process';
import { join } from 'node:path';

/** A man, a woman, and the man again. @param place folder for what is made on the way @returns WAV */
export function dialogue(place: string): Buffer {
  const said = [
    ['rms', 'The children played with a ball in the park.'],
    ['slt', 'The weather was warm this morning.'],
    ['rms', 'In the afternoon the family had dinner near the river.'],
  ] as const;
  const files = said.map(([voice, text], at) => {
    const file = join(place, `said-${at}.wav`);
    spawnSync('flite', ['-voice', voice, '-t', text, '-o', file]);
    return file;
  });
  const padded = files.map((_, at) => `[${at}]apad=pad_dur=1[p${at}]`).join(';');
  const joined = `${padded};${files.map((_, at) => `[p${at}]`).join('')}concat=n=${files.length}:v=0:a=1`;
  const inputs = files.flatMap((file) => ['-i', file]);
  const args = ['-v', 'error', ...inputs, '-filter_complex', joined, '-ar', '16000', '-f', 'wav', '-'];
  return spawnSync('ffmpeg', args, { maxBuffer: 1e8 }).stdout;
}
