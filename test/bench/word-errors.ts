/**
 * Word error rates by engine and model, on speech that no model here was trained on: `node test/bench/word-errors.ts
 * [--models <folder or file>,…]`. It prints a table. Machine voices are flite's and espeak-ng's; people are those whose
 * recordings Debian has (pocketsphinx-testdata, and asterisk-core-sounds-en with asterisk-core-sounds-en-wav), where they
 * are installed. What is missing is named.
 */
import { spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { gunzipSync } from 'node:zlib';
import { findProgram } from '../../builtin-tenants/speech/engine/programs.ts';
import { type RunningEngine, startEngine } from '../speech/harness/programs.ts';
import { requestSocket } from '../speech/harness/socket.ts';
import { makeStreamingModel } from '../speech/harness/streaming-model.ts';
import { wordErrors } from '../speech/harness/word-errors.ts';

interface Said {
  text: string;
  audio: Buffer;
}

interface Engine {
  name: string;
  listen: { engine: 'pocketsphinx' | 'whisper.cpp' | 'sherpa-onnx'; model?: string };
}

const PARAGRAPH =
  'The weather was warm this morning, and many people went to the park to enjoy the sun. The children played with a ball while their parents talked about the news of the day. In the afternoon the family had dinner in a small restaurant near the river. Everyone was happy with the food and the service. They decided to come back again next week.';
const TESTED = fileURLToPath(new URL('../speech/model/zipformer-ctc-machine-voices', import.meta.url));
const SPHINX = '/usr/share/pocketsphinx/test/data';
const ASTERISK = {
  texts: '/usr/share/doc/asterisk-core-sounds-en/core-sounds-en.txt.gz',
  sounds: '/usr/share/asterisk/sounds/en_US_f_Allison',
};
/** Of Asterisk's announcements so many, of at least so many words. */
const ANNOUNCEMENTS = 20;
const LEAST_WORDS = 5;

const { values } = parseArgs({ options: { models: { type: 'string', default: '' } } });
const folder = mkdtempSync(join(tmpdir(), 'word-errors-'));
try {
  await main(values.models.split(',').filter(Boolean));
} finally {
  rmSync(folder, { recursive: true, force: true });
}

async function main(models: string[]): Promise<void> {
  const engines: Engine[] = [
    { name: 'sherpa-onnx, the tests’ model', listen: { engine: 'sherpa-onnx', model: TESTED } },
    {
      name: 'sherpa-onnx, the tests’ model, streaming',
      listen: { engine: 'sherpa-onnx', model: makeStreamingModel(folder) },
    },
    ...models.map((model): Engine => {
      const engine = /\.(bin|gguf)$/.test(model) ? 'whisper.cpp' : 'sherpa-onnx';
      return { name: `${engine}, ${basename(model)}`, listen: { engine, model } };
    }),
    // the slowest by far: what the others hear is said before
    { name: 'pocketsphinx, en-us of Debian', listen: { engine: 'pocketsphinx' } },
  ];
  const speech = await spoken();
  const rows: string[][] = [];
  for (const { name, listen } of engines) {
    const engine = await startEngine({ listen });
    try {
      const row = [name, ...(await ratesOf(engine, [...speech.values()]))];
      console.error(row.join(' | '));
      rows.push(row);
    } finally {
      await engine.stop();
    }
  }
  const lines = [['spoken by', ...rows.map(([name]) => name)]];
  for (const [at, by] of [...speech.keys()].entries()) lines.push([by, ...rows.map((row) => row[at + 1] ?? row[1])]);
  const [head, ...rest] = lines.map((cells) => `| ${cells.join(' | ')} |`);
  console.log([head, `| ${lines[0]?.map(() => '---').join(' | ')} |`, ...rest].join('\n'));
}

/** Or why it hears nothing. */
async function ratesOf(engine: RunningEngine, speech: Said[][]): Promise<string[]> {
  const { json } = await requestSocket(engine.socket, 'GET', '/health');
  const { ok, fix = '' } = (json as { listen: { ok: boolean; fix?: string } }).listen;
  if (!ok) return [fix];
  const rates: string[] = [];
  for (const said of speech) {
    let [errors, words] = [0, 0];
    for (const { text, audio } of said) {
      const counted = wordErrors(text, await heard(engine, audio));
      errors += counted.errors;
      words += counted.words;
    }
    rates.push(`${((errors * 100) / words).toFixed(1)} %`);
  }
  return rates;
}

async function heard(engine: RunningEngine, audio: Buffer): Promise<string> {
  const { status, json } = await requestSocket(engine.socket, 'POST', '/listen', audio);
  if (status !== 200) throw new Error(`the engine answers ${status}: ${JSON.stringify(json)}`);
  const { channels } = json as { channels: { words: { word: string }[] }[] };
  return channels.flatMap(({ words }) => words.map(({ word }) => word)).join(' ');
}

/** By who speaks. */
async function spoken(): Promise<Map<string, Said[]>> {
  const speech = new Map<string, Said[]>();
  if (await findProgram('flite'))
    for (const voice of ['rms', 'slt', 'awb', 'kal16']) speech.set(`flite ${voice}`, flite(voice));
  else missing('flite');
  const engine = await startEngine({ listen: { engine: 'none' } });
  for (const voice of ['en-us', 'en-gb', 'en-gb-scotland', 'en-029']) {
    const asked = JSON.stringify({ text: PARAGRAPH, model: `espeak-ng-${voice}`, encoding: 'linear16' });
    const { status, bytes } = await requestSocket(engine.socket, 'POST', '/speak', asked);
    if (status === 200) speech.set(`espeak-ng ${voice}`, [{ text: PARAGRAPH, audio: bytes }]);
    else missing(`espeak-ng ${voice}`);
  }
  await engine.stop();
  if (existsSync(SPHINX)) {
    speech.set('a book, read (LibriVox)', sphinx('librivox'));
    speech.set('cards, named', sphinx('cards'));
  } else missing('pocketsphinx-testdata');
  if (existsSync(ASTERISK.texts) && existsSync(ASTERISK.sounds))
    speech.set('announcements, 8 kHz (Asterisk)', asterisk());
  else missing('asterisk-core-sounds-en, asterisk-core-sounds-en-wav');
  return speech;
}

function missing(what: string): void {
  console.error(`not here, and left out: ${what}`);
}

function flite(voice: string): Said[] {
  const file = join(folder, `${voice}.wav`);
  spawnSync('flite', ['-voice', voice, '-t', PARAGRAPH, '-o', file]);
  return [{ text: PARAGRAPH, audio: readFileSync(file) }];
}

/** Lines are `<s> what was said </s> (file)`. */
function sphinx(set: string): Said[] {
  const file = ['transcription', `${set}.transcription`].map((name) => join(SPHINX, set, name)).find(existsSync) ?? '';
  return [...readFileSync(file, 'utf8').matchAll(/<s>(.*)<\/s>\s*\((.*)\)/g)].map(([, text = '', name]) => ({
    text,
    audio: readFileSync(join(SPHINX, set, `${name}.wav`)),
  }));
}

/** Lines are `file: what was said`; notes are in brackets, and digits are not spelled. */
function asterisk(): Said[] {
  const texts = gunzipSync(readFileSync(ASTERISK.texts)).toString('utf8');
  return [...texts.matchAll(/^([\w/-]+): (.+)$/gm)]
    .map(([, name = '', text = '']) => ({ file: join(ASTERISK.sounds, `${name}.wav`), text }))
    .filter(({ file, text }) => !/[[(<\d]/.test(text) && text.split(/\s+/).length >= LEAST_WORDS && existsSync(file))
    .slice(0, ANNOUNCEMENTS)
    .map(({ file, text }) => ({ text, audio: readFileSync(file) }));
}
