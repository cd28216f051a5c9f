/**
 * What every local synthesizer does: one piece of text in, samples out. It runs in a thread of its own, and may wait there.
 */
export type VoiceEngine = 'espeak-ng' | 'flite' | 'sherpa-onnx';

export interface Voice {
  name: VoiceEngine;
  /** @param asked BCP 47, or a voice by the engine's own name @returns the engine's own name of a voice for it, or undefined */
  voiceFor(asked: string): string | undefined;
  /** @returns samples a second @throws EngineFailure internal: it cannot be loaded; unsupported_option: no such speaker */
  open(voice: string): number | Promise<number>;
  /**
   * @param speed 1 is normal
   * @param onSamples called with blocks of any length, in order, before this is done
   * @throws EngineFailure internal
   */
  synthesize(
    text: string,
    voice: string,
    speed: number,
    onSamples: (samples: Int16Array) => void,
  ): void | Promise<void>;
}

/**
 * What a `model` asks for: Deepgram's voices end in the language (`aura-2-thalia-en`), ours are `espeak-ng-<language>`
 * and `flite-<voice>`, and installed voices are called as their folders, with `:<speaker>` where they have several.
 */
export interface AskedVoice {
  /** As it was asked for, where it may be an installed voice. */
  model: string | undefined;
  engine: VoiceEngine | undefined;
  /** Name of a flite voice. */
  name: string | undefined;
  language: string;
  /** Set where the model is not a voice of espeak-ng or flite. */
  substituted: boolean;
}

export function readModel(model: string | undefined): AskedVoice {
  const asked = { model: undefined, engine: undefined, name: undefined, language: 'en', substituted: false };
  if (model === undefined || model === '') return asked;
  const espeak = /^espeak-ng(?:-([a-z]{2,3}(?:-[a-z0-9]+)*))?$/i.exec(model);
  if (espeak) return { ...asked, engine: 'espeak-ng', language: espeak[1] ?? 'en' };
  const flite = /^flite(?:-([a-z0-9_]+))?$/i.exec(model);
  if (flite) return { ...asked, engine: 'flite', name: flite[1] };
  const language = /-([a-z]{2})$/.exec(model)?.[1];
  return { ...asked, model, language: language ?? 'en', substituted: true };
}
