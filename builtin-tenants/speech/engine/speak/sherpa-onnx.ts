/**
 * Voices of sherpa-onnx (piper and others of VITS, Matcha, Kokoro, Kitten): each is loaded into a process of its own when
 * it is first asked for, and gives back its memory when nobody has asked for a while.
 */
import { fileURLToPath } from 'node:url';
import { EngineFailure } from '../failure.ts';
import { NativeProcess } from '../native-process.ts';
import type { VoiceModel } from './sherpa-onnx-model.ts';
import type { Spoken, VoiceFacts } from './sherpa-onnx-process.ts';
import type { Voice } from './voice.ts';

const PROCESS = fileURLToPath(new URL('sherpa-onnx-process.ts', import.meta.url));
const IDLE_MS = 300_000;
const ENGINE = 'sherpa-onnx';

export interface InstalledVoice extends Voice {
  /** What the model itself says. @throws EngineFailure internal, whose cause is what it said */
  facts(): Promise<VoiceFacts>;
  close(): void;
}

export function openSherpaOnnxVoice({ name, languages, config }: VoiceModel): InstalledVoice {
  let running: NativeProcess<VoiceFacts, Spoken> | undefined;
  let idle: NodeJS.Timeout | undefined;
  const close = () => {
    clearTimeout(idle);
    running?.end();
    running = undefined;
  };
  const process = () => {
    clearTimeout(idle);
    idle = setTimeout(close, IDLE_MS).unref();
    if (running === undefined || running.isOver) running = new NativeProcess(PROCESS, config, `the voice ${name}`);
    return running;
  };
  const speaks = (language: string) =>
    languages.some((one) => one === language || one.split('-')[0] === language.split('-')[0]);
  return {
    name: ENGINE,
    facts: () => process().ready,
    close,
    voiceFor(asked) {
      if (speakerOf(name, asked) !== undefined) return asked.replace(`${ENGINE}-`, '');
      return speaks(asked.toLowerCase()) ? name : undefined;
    },
    async open(voice) {
      const { sampleRate, speakers } = await process().ready;
      const speaker = speakerOf(name, voice) ?? 0;
      if (speaker < speakers) return sampleRate;
      const last = speakers - 1;
      throw new EngineFailure('unsupported_option', `model=${voice}: its speakers are ${name}:0 to ${name}:${last}.`);
    },
    async synthesize(text, voice, speed, onSamples) {
      const { samples } = await process().ask({ text: plain(text), speaker: speakerOf(name, voice) ?? 0, speed });
      if (samples.length > 0) onSamples(samples);
    },
  };
}

/** @param asked such as `kokoro-en-v0_19` or `kokoro-en-v0_19:3` @returns undefined: another voice is meant */
function speakerOf(name: string, asked: string): number | undefined {
  const [, voice, speaker = '0'] = /^(?:sherpa-onnx-)?(.+?)(?::(\d{1,4}))?$/.exec(asked) ?? [];
  return voice === name ? Number(speaker) : undefined;
}

function plain(text: string): string {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: nothing of it is spoken
  return text.replace(/[\u0000-\u001f\u007f]/g, ' ');
}
