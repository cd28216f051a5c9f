/**
 * Published models that hear or speak, or help one that hears, which the operator's command installs by name. Names, sizes and licences as their publishers
 * give them; none of them could be run where this list was written.
 */

export interface Checksum {
  algorithm: 'sha256' | 'sha1';
  /** Hexadecimal, lower case. */
  value: string;
}

export type ModelKind = 'hears' | 'speaks' | 'helps';

export interface PublishedModel {
  /** What the command calls it. */
  name: string;
  /** What it does. */
  kind: ModelKind;
  /** What runs it. */
  engine: 'sherpa-onnx' | 'whisper.cpp';
  languages: string;
  licence: string;
  /** Size of the download, bytes. */
  bytes: number;
  /** An archive (`.tar.bz2`), or the model file itself. */
  url: string;
  /** As published, or as noted by several who downloaded it; absent where none is known. */
  checksum?: Checksum;
}

/** https://k2-fsa.github.io/sherpa/onnx/pretrained_models/ */
const SHERPA_ONNX = 'https://github.com/k2-fsa/sherpa-onnx/releases/download/asr-models';
/** https://k2-fsa.github.io/sherpa/onnx/tts/pretrained_models/ */
const VOICES = 'https://github.com/k2-fsa/sherpa-onnx/releases/download/tts-models';
/** https://k2-fsa.github.io/sherpa/onnx/speaker-diarization/models.html; the address is spelled so */
const SEGMENTATION = 'https://github.com/k2-fsa/sherpa-onnx/releases/download/speaker-segmentation-models';
const VOICEPRINTS = 'https://github.com/k2-fsa/sherpa-onnx/releases/download/speaker-recongition-models';
/** https://k2-fsa.github.io/sherpa/onnx/punctuation/pretrained_models.html */
const PUNCTUATION = 'https://github.com/k2-fsa/sherpa-onnx/releases/download/punctuation-models';
/** Sizes and SHA-1 sums: https://github.com/ggml-org/whisper.cpp/blob/master/models/README.md */
const WHISPER_CPP = 'https://huggingface.co/ggerganov/whisper.cpp/resolve/main';

export const PUBLISHED: readonly PublishedModel[] = [
  {
    name: 'parakeet-v3',
    kind: 'hears',
    engine: 'sherpa-onnx',
    languages: '25 European languages',
    licence: 'CC-BY-4.0 (NVIDIA)',
    bytes: 487_000_000,
    url: `${SHERPA_ONNX}/sherpa-onnx-nemo-parakeet-tdt-0.6b-v3-int8.tar.bz2`,
    checksum: { algorithm: 'sha256', value: '5793d0fd397c5778d2cf2126994d58e9d56b1be7c04d13c7a15bb1b4eafb16bf' },
  },
  {
    name: 'parakeet-v2',
    kind: 'hears',
    engine: 'sherpa-onnx',
    languages: 'English',
    licence: 'CC-BY-4.0 (NVIDIA)',
    bytes: 483_000_000,
    url: `${SHERPA_ONNX}/sherpa-onnx-nemo-parakeet-tdt-0.6b-v2-int8.tar.bz2`,
  },
  {
    name: 'sense-voice',
    kind: 'hears',
    engine: 'sherpa-onnx',
    languages: 'Chinese, Cantonese, English, Japanese, Korean',
    licence: 'FunASR Model License',
    bytes: 163_002_883,
    url: `${SHERPA_ONNX}/sherpa-onnx-sense-voice-zh-en-ja-ko-yue-int8-2024-07-17.tar.bz2`,
    checksum: { algorithm: 'sha256', value: '7d1efa2138a65b0b488df37f8b89e3d91a60676e416f515b952358d83dfd347e' },
  },
  {
    name: 'whisper-base.en',
    kind: 'hears',
    engine: 'sherpa-onnx',
    languages: 'English',
    licence: 'MIT (OpenAI)',
    bytes: 208_000_000,
    url: `${SHERPA_ONNX}/sherpa-onnx-whisper-base.en.tar.bz2`,
    checksum: { algorithm: 'sha256', value: '475bc7052ce299c007f6d5d5407ba8601f819a2867f6eecee510ed17df581542' },
  },
  {
    name: 'ggml-base.en',
    kind: 'hears',
    engine: 'whisper.cpp',
    languages: 'English',
    licence: 'MIT (OpenAI)',
    bytes: 147_964_211,
    url: `${WHISPER_CPP}/ggml-base.en.bin`,
    checksum: { algorithm: 'sha1', value: '137c40403d78fd54d454da0f9bd998f78703390c' },
  },
  {
    name: 'ggml-small',
    kind: 'hears',
    engine: 'whisper.cpp',
    languages: '99 languages',
    licence: 'MIT (OpenAI)',
    bytes: 487_601_967,
    url: `${WHISPER_CPP}/ggml-small.bin`,
    checksum: { algorithm: 'sha1', value: '55356645c2b361a969dfd0ef2c5a50d530afd8d5' },
  },
  {
    name: 'ggml-large-v3-turbo-q5_0',
    kind: 'hears',
    engine: 'whisper.cpp',
    languages: '99 languages',
    licence: 'MIT (OpenAI)',
    bytes: 574_000_000,
    url: `${WHISPER_CPP}/ggml-large-v3-turbo-q5_0.bin`,
    checksum: { algorithm: 'sha1', value: 'e050f7970618a659205450ad97eb95a18d69c9ee' },
  },
  {
    name: 'streaming-zipformer-en',
    kind: 'hears',
    engine: 'sherpa-onnx',
    languages: 'English, live as it comes',
    licence: 'Apache-2.0',
    bytes: 310_414_022,
    url: `${SHERPA_ONNX}/sherpa-onnx-streaming-zipformer-en-2023-06-26.tar.bz2`,
  },
  {
    name: 'speakers-pyannote',
    kind: 'helps',
    engine: 'sherpa-onnx',
    languages: 'any: where somebody speaks (diarize)',
    licence: 'MIT',
    bytes: 6_958_444,
    url: `${SEGMENTATION}/sherpa-onnx-pyannote-segmentation-3-0.tar.bz2`,
    checksum: { algorithm: 'sha256', value: '24615ee884c897d9d2ba09bb4d30da6bb1b15e685065962db5b02e76e4996488' },
  },
  {
    name: 'speakers-titanet',
    kind: 'helps',
    engine: 'sherpa-onnx',
    languages: 'any: whose voice it is (diarize)',
    licence: 'CC-BY-4.0 (NVIDIA)',
    bytes: 40_257_283,
    url: `${VOICEPRINTS}/nemo_en_titanet_small.onnx`,
    checksum: { algorithm: 'sha256', value: 'ad4a1802485d8b34c722d2a9d04249662f2ece5d28a7a039063ca22f515a789e' },
  },
  {
    name: 'punctuation',
    kind: 'helps',
    engine: 'sherpa-onnx',
    languages: 'English, Chinese: punctuation',
    licence: 'Apache-2.0',
    bytes: 64_717_756,
    url: `${PUNCTUATION}/sherpa-onnx-punct-ct-transformer-zh-en-vocab272727-2024-04-12-int8.tar.bz2`,
    checksum: { algorithm: 'sha256', value: 'c0d5aa5f8eeb686032345e180bedf39319dc2e0556781c6264bcadba8328a6e1' },
  },
  {
    name: 'kokoro-en',
    kind: 'speaks',
    engine: 'sherpa-onnx',
    languages: 'English, 11 speakers',
    licence: 'Apache-2.0',
    bytes: 103_248_205,
    url: `${VOICES}/kokoro-int8-en-v0_19.tar.bz2`,
    checksum: { algorithm: 'sha256', value: 'c9f0dd393615805b0bab050c340834d5e684e732aec91c0e860cd30e982c08bd' },
  },
  {
    name: 'kokoro-multi',
    kind: 'speaks',
    engine: 'sherpa-onnx',
    languages: 'English, Chinese, 53 speakers',
    licence: 'Apache-2.0',
    bytes: 349_000_000,
    url: `${VOICES}/kokoro-multi-lang-v1_0.tar.bz2`,
    checksum: { algorithm: 'sha256', value: 'c5f7e2d2caf082bc1d20fb70334a61d99d20b484500aad32e7cf84c128ea3298' },
  },
  {
    name: 'piper-en-libritts',
    kind: 'speaks',
    engine: 'sherpa-onnx',
    languages: 'English, 904 speakers',
    licence: 'CC-BY-4.0',
    bytes: 82_038_311,
    url: `${VOICES}/vits-piper-en_US-libritts_r-medium.tar.bz2`,
    checksum: { algorithm: 'sha256', value: '10dc268f3e371696d721486123e2705a9fc1faa113491979fde4d88dba1f1b1c' },
  },
  {
    name: 'piper-en-ljspeech',
    kind: 'speaks',
    engine: 'sherpa-onnx',
    languages: 'English',
    licence: 'public domain',
    bytes: 67_169_893,
    url: `${VOICES}/vits-piper-en_US-ljspeech-medium.tar.bz2`,
  },
  {
    name: 'piper-de-thorsten',
    kind: 'speaks',
    engine: 'sherpa-onnx',
    languages: 'German',
    licence: 'CC0-1.0',
    bytes: 67_214_254,
    url: `${VOICES}/vits-piper-de_DE-thorsten-medium.tar.bz2`,
  },
  {
    name: 'piper-fr-siwis',
    kind: 'speaks',
    engine: 'sherpa-onnx',
    languages: 'French',
    licence: 'CC-BY-4.0',
    bytes: 67_207_459,
    url: `${VOICES}/vits-piper-fr_FR-siwis-medium.tar.bz2`,
  },
];

/** The one to take where nobody knows better: the best known for English and most of Europe, on any processor. */
export const RECOMMENDED = 'parakeet-v3';
export const RECOMMENDED_VOICE = 'kokoro-en';
