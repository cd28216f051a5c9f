/**
 * espeak-ng compiled to WebAssembly (`@echogarden/espeak-ng-emscripten`, GPL-3.0, an optional dependency that is loaded
 * only in the engine's own threads): over a hundred languages, robotic, and about a hundred times faster than speech.
 */
import type { Voice } from './voice.ts';

/** The part of the package's untyped interface that is used. */
interface EspeakWorker {
  set_voice(identifier: string): number;
  set_rate(wordsPerMinute: number): void;
  get_samplerate(): number;
  list_voices(): { name: string; identifier: string; languages: { name: string }[] }[];
  synthesize(text: string, onAudio: (samples: Int16Array | null, events: unknown[]) => boolean): void;
}

const NORMAL_RATE = 175;

/** @returns undefined where the optional package is not installed */
export async function openEspeak(): Promise<Voice | undefined> {
  const name: string = '@echogarden/espeak-ng-emscripten';
  const module = await import(name).catch(() => undefined);
  if (module === undefined) return undefined;
  const instance = await module.default();
  const worker: EspeakWorker = new instance.eSpeakNGWorker();
  const identifiers = new Map<string, string>();
  for (const voice of worker.list_voices()) {
    for (const { name: language } of voice.languages) {
      if (!identifiers.has(language) || language.includes('-')) identifiers.set(language, voice.identifier);
    }
  }
  identifiers.set('en', 'gmw/en-US');
  return {
    name: 'espeak-ng',
    open: () => worker.get_samplerate(),
    voiceFor: (language) => {
      const tag = language.toLowerCase();
      return identifiers.get(tag) ?? identifiers.get(tag.split('-')[0] ?? '');
    },
    synthesize(text, voice, speed, onSamples) {
      worker.set_voice(voice);
      worker.set_rate(Math.round(NORMAL_RATE * speed));
      worker.synthesize(plain(text), (samples) => {
        if (samples !== null && samples.length > 0) onSamples(samples);
        return false;
      });
    },
  };
}

/** The build reads SSML: marks in a caller's text must not become commands such as an hour of silence. */
function plain(text: string): string {
  return (
    text
      .replaceAll('&', '&amp;')
      .replaceAll('<', '&lt;')
      .replaceAll('>', '&gt;')
      // biome-ignore lint/suspicious/noControlCharactersInRegex: espeak takes control characters as commands
      .replace(/[\u0000-\u001f\u007f]/g, ' ')
  );
}
