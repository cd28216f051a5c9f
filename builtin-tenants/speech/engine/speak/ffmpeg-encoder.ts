/**
 * FLAC, Opus and AAC by FFmpeg where it is installed: samples go to its standard input, and bytes come as they are made.
 * It reads nothing but samples of ours, and ends with its input: with the thread, and with the engine, too.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { lowerPriority } from '../child.ts';
import { EngineFailure } from '../failure.ts';
import type { SpeechEncoder } from './encode.ts';
import type { FfmpegEncoding, SpeechFormat } from './format.ts';

const CODECS: Record<FfmpegEncoding, (bitRate: string) => string[]> = {
  flac: () => ['-c:a', 'flac', '-f', 'flac'],
  // pages of a tenth of a second: a listener does not wait for a whole one
  opus: (bitRate) => [
    '-c:a',
    'libopus',
    '-application',
    'voip',
    '-b:a',
    bitRate,
    '-page_duration',
    '100000',
    '-f',
    'ogg',
  ],
  aac: (bitRate) => ['-c:a', 'aac', '-b:a', bitRate, '-f', 'adts'],
};
const MOST_SAID = 1000;

/**
 * Not started before the first samples: until then nothing is sent, and what fails is still an answer of its own.
 * @param sourceRate samples a second of what is pushed
 */
export function createFfmpegEncoder(
  ffmpeg: string,
  { encoding, bitRate, sampleRate }: SpeechFormat & { encoding: FfmpegEncoding },
  sourceRate: number,
  emit: (bytes: Uint8Array) => void,
): SpeechEncoder {
  let running: ReturnType<typeof start> | undefined;

  function start() {
    const child = spawn(
      ffmpeg,
      [
        ...['-nostdin', '-hide_banner', '-v', 'error', '-protocol_whitelist', 'pipe', '-threads', '1'],
        ...['-f', 's16le', '-ar', String(sourceRate), '-ac', '1', '-i', 'pipe:0', '-map_metadata', '-1'],
        ...['-ar', String(sampleRate ?? sourceRate), '-threads', '1', ...CODECS[encoding](String(bitRate))],
        ...['-flush_packets', '1', 'pipe:1'],
      ],
      { stdio: ['pipe', 'pipe', 'pipe'], env: {}, detached: true },
    );
    lowerPriority(child.pid);
    let said = '';
    child.stderr.setEncoding('utf8').on('data', (text: string) => {
      said = (said + text).slice(-MOST_SAID);
    });
    child.stdout.on('data', emit);
    // its end is what counts
    child.stdin.on('error', () => {});
    const ended = once(child, 'close').then(
      ([code]) => ({ code, said }),
      (error: Error) => ({ code: null, said: error.message }),
    );
    return { child, ended };
  }

  return {
    push(samples) {
      running ??= start();
      running.child.stdin.write(
        Buffer.from(samples.buffer.slice(samples.byteOffset, samples.byteOffset + samples.byteLength)),
      );
    },
    async taken() {
      const stdin = running?.child.stdin;
      if (stdin?.writableNeedDrain !== true) return;
      await Promise.race([once(stdin, 'drain'), once(stdin, 'close')]);
    },
    async end() {
      if (running === undefined) return;
      running.child.stdin.end();
      const { code, said } = await running.ended;
      if (code === 0) return;
      const failure = new EngineFailure(
        'unsupported_option',
        `encoding=${encoding}: the FFmpeg of this host cannot make it.`,
      );
      failure.cause = said;
      throw failure;
    },
    close() {
      running?.child.kill('SIGKILL');
    },
  };
}
