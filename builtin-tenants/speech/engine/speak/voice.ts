/**
 * What every local synthesizer does: one piece of text in, samples out, without waiting (it runs in a thread of its own).
 */
export interface Voice {
  name: 'espeak-ng' | 'flite';
  sampleRate: number;
  /** @param language BCP 47 @returns the engine's own name of a voice for it, or undefined */
  voiceFor(language: string): string | undefined;
  /**
   * @param speed 1 is normal
   * @param onSamples called with blocks of any length, in order, before this returns
   */
  synthesize(text: string, voice: string, speed: number, onSamples: (samples: Int16Array) => void): void;
}

/**
 * What a `model` asks for: Deepgram's voices end in the language (`aura-2-thalia-en`), ours are `espeak-ng-<language>`
 * and `flite-<voice>`.
 */
export interface AskedVoice {
  engine: 'espeak-ng' | 'flite' | undefined;
  /** Name of a flite voice. */
  name: string | undefined;
  language: string;
  /** Set where the model is a voice that this engine does not have. */
  substituted: boolean;
}

export function readModel(model: string | undefined): AskedVoice {
  const asked = { engine: undefined, name: undefined, language: 'en', substituted: false };
  if (model === undefined || model === '') return asked;
  const espeak = /^espeak-ng(?:-([a-z]{2,3}(?:-[a-z0-9]+)*))?$/i.exec(model);
  if (espeak) return { ...asked, engine: 'espeak-ng', language: espeak[1] ?? 'en' };
  const flite = /^flite(?:-([a-z0-9_]+))?$/i.exec(model);
  if (flite) return { ...asked, engine: 'flite', name: flite[1] };
  const language = /-([a-z]{2})$/.exec(model)?.[1];
  return { ...asked, language: language ?? 'en', substituted: true };
}
