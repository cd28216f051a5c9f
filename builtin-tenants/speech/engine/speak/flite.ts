/**
 * Flite where it is installed: English only, smoother than espeak-ng, and what the recognizers understand best.
 */
import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { findProgram } from '../programs.ts';
import type { Voice } from './voice.ts';

/** Every packaged voice but the 8 kHz one, which sounds like a telephone. */
const SAMPLE_RATE = 16_000;
const TIMEOUT_MS = 20_000;
const DEFAULT_VOICE = 'rms';

/** @param spool folder for text and sound while they are worked on; a process that is killed leaves them there */
export async function openFlite(spool: string): Promise<Voice | undefined> {
  const path = await findProgram('flite');
  if (path === undefined) return undefined;
  const listed = spawnSync(path, ['-lv'], { encoding: 'utf8', timeout: TIMEOUT_MS, env: {} });
  const voices =
    /Voices available:(.*)/
      .exec(listed.stdout ?? '')?.[1]
      ?.trim()
      .split(/\s+/) ?? [];
  const usable = voices.filter((voice) => voice !== 'kal' && voice !== 'awb_time');
  const standard = usable.includes(DEFAULT_VOICE) ? DEFAULT_VOICE : usable[0];
  if (standard === undefined) return undefined;
  return {
    name: 'flite',
    open: () => SAMPLE_RATE,
    voiceFor(asked) {
      if (usable.includes(asked)) return asked;
      return /^en\b/i.test(asked) ? standard : undefined;
    },
    synthesize(text, voice, speed, onSamples) {
      // by files: flite opens neither the pipes that Node makes nor `-`, and arguments are visible to the whole machine
      const folder = mkdtempSync(join(spool, 'flite-'));
      try {
        const [input, output] = [join(folder, 'text'), join(folder, 'speech.wav')];
        writeFileSync(input, text, { mode: 0o600 });
        const stretch = `duration_stretch=${(1 / speed).toFixed(3)}`;
        const args = ['-voice', voice, '--setf', stretch, '-f', input, '-o', output];
        const { status } = spawnSync(path, args, { stdio: 'ignore', timeout: TIMEOUT_MS, env: {} });
        if (status !== 0) throw new Error(`flite ended with ${status}`);
        onSamples(samplesOf(readFileSync(output)));
      } finally {
        rmSync(folder, { recursive: true, force: true });
      }
    },
  };
}

/** Skips the RIFF header. */
function samplesOf(wav: Buffer): Int16Array {
  const data = wav.indexOf('data');
  const body = wav.subarray(data + 8, wav.length - ((wav.length - data) % 2));
  return new Int16Array(body.buffer.slice(body.byteOffset, body.byteOffset + Math.floor(body.length / 2) * 2));
}
