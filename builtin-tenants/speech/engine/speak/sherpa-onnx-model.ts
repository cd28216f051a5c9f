/**
 * What a folder with a voice of sherpa-onnx holds: the kinds are told by the names that files have in published archives.
 */
import { existsSync, readdirSync } from 'node:fs';
import { basename, join } from 'node:path';

export type VoiceKind = 'vits' | 'matcha' | 'kokoro' | 'kitten';

export interface VoiceModel {
  /** The folder's. */
  name: string;
  kind: VoiceKind;
  /** BCP 47, lower case, the first is the one that it has in its name: such as `en-us`. */
  languages: string[];
  /** An OfflineTtsConfig of sherpa-onnx-node (types.js). */
  config: object;
}

const NAMED = /(^|[-_])(vits|piper|matcha|kokoro|kitten)([-_]|$)/i;
const PHONEMES = 'espeak-ng-data';

/** Whether it speaks; else it may be one that hears. */
export function isVoice(name: string, files: readonly string[]): boolean {
  return files.includes(PHONEMES) || NAMED.test(name);
}

/** @throws Error that says what is missing */
export function describeVoice(folder: string, files: readonly string[], threads = 1): VoiceModel {
  const name = basename(folder);
  const models = files.filter((file) => file.endsWith('.onnx'));
  const find = (pattern: RegExp) => {
    const found = models.filter((file) => pattern.test(file));
    return found.find((file) => file.includes('int8')) ?? found[0];
  };
  const need = (what: string, file: string | undefined) => {
    if (file === undefined) throw new Error(`sherpa-onnx: the voice in ${name} has no ${what}`);
    return join(folder, file);
  };
  const tokens = need('tokens.txt', files.includes('tokens.txt') ? 'tokens.txt' : undefined);
  const lexicon = files.filter((file) => /^lexicon.*\.txt$/.test(file)).map((file) => join(folder, file));
  const common = {
    tokens,
    ...(files.includes(PHONEMES) ? { dataDir: join(folder, PHONEMES) } : {}),
    ...(lexicon.length === 0 ? {} : { lexicon: lexicon.join(',') }),
  };
  const kind = kindOf(name, files);
  const vocoder = find(/vocos|hifigan/i);
  const voices = files.find((file) => /^voices.*\.bin$/.test(file));
  const parts: Record<VoiceKind, () => object> = {
    vits: () => ({ model: need('model (.onnx)', find(/./)) }),
    matcha: () => ({
      acousticModel: need('acoustic model (model-steps-….onnx)', find(/^model/)),
      vocoder: need('vocoder: put vocos-22khz-univ.onnx, or hifigan_v2.onnx, into its folder', vocoder),
    }),
    kokoro: () => ({ model: need('model (.onnx)', find(/./)), voices: need('voices.bin', voices) }),
    kitten: () => ({ model: need('model (.onnx)', find(/./)), voices: need('voices.bin', voices) }),
  };
  const rules = files.filter((file) => file.endsWith('.fst')).map((file) => join(folder, file));
  return {
    name,
    kind,
    languages: languagesOf(name),
    config: {
      model: { [kind]: { ...common, ...parts[kind]() }, numThreads: threads },
      maxNumSentences: 1,
      ...(rules.length === 0 ? {} : { ruleFsts: rules.join(',') }),
    },
  };
}

/** @throws Error as `describeVoice`, or that the folder is not there */
export function describeVoiceIn(folder: string, threads?: number): VoiceModel {
  if (!existsSync(folder)) throw new Error(`sherpa-onnx: no voice at ${folder}`);
  return describeVoice(folder, readdirSync(folder), threads);
}

function kindOf(name: string, files: readonly string[]): VoiceKind {
  if (/matcha/i.test(name)) return 'matcha';
  if (/kitten/i.test(name)) return 'kitten';
  return files.some((file) => /^voices.*\.bin$/.test(file)) ? 'kokoro' : 'vits';
}

/** Published names tell them: `vits-piper-en_US-amy-low`, `kokoro-en-v0_19`; `multi-lang` is English and Chinese. */
function languagesOf(name: string): string[] {
  if (/multi[-_]lang/i.test(name)) return ['en', 'zh'];
  const found = [...name.matchAll(/(?<=^|-)([a-z]{2})(?:_([A-Z]{2}))?(?=-|_|$)/g)].map(([, language = '', region]) =>
    region === undefined ? language : `${language}-${region.toLowerCase()}`,
  );
  return found.length === 0 ? ['en'] : found;
}
