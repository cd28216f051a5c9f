/** What helping models say, put to the words that were heard: who said each, and how it is written. */
import { describe, expect, it } from 'vitest';
import { helperKind, withMarks, withSpeakers } from '../../../builtin-tenants/speech/engine/listen/helpers.ts';

const words = (text: string) => text.split(' ').map((word, at) => ({ word, start: at, end: at + 0.5, confidence: 1 }));
const written = (text: string, marked: string) =>
  withMarks(words(text), marked).map(({ word, punctuated }) => punctuated ?? word);

describe('speakers', () => {
  const segments = [
    { start: 0, end: 1.2, speaker: 0 },
    { start: 2.1, end: 3.9, speaker: 1 },
  ];

  it('say the words that they speak for longest, or nearest to', () => {
    expect(withSpeakers(words('a b c d e'), segments).map(({ speaker }) => speaker)).toEqual([0, 0, 1, 1, 1]);
  });

  it('are none where nobody was heard', () => {
    expect(withSpeakers(words('a b'), [])).toEqual(words('a b'));
  });
});

describe('marks', () => {
  it('end sentences, and the next one begins with a capital', () => {
    expect(written('it was warm and they went out who did', 'it was warm，and they went out。who did？')).toEqual([
      'It',
      'was',
      'warm,',
      'and',
      'they',
      'went',
      'out.',
      'Who',
      'did?',
    ]);
  });

  it('stand between characters that the model cuts words into', () => {
    expect(written("don't go", "don ' t go。")).toEqual(["Don't", 'go.']);
    expect(written('你好 吗', '你好吗？')).toEqual(['你好', '吗?']);
  });

  it('are left out where the text has other words', () => {
    expect(written('one two', 'one three。')).toEqual(['one', 'two']);
    expect(written('one two', '')).toEqual(['one', 'two']);
  });
});

it.each([
  ['sherpa-onnx-pyannote-segmentation-3-0', 'segments'],
  ['sherpa-onnx-reverb-diarization-segmentation-v1', 'segments'],
  ['sherpa-onnx-punct-ct-transformer-zh-en-vocab272727-2024-04-12', 'punctuates'],
  ['3dspeaker_speech_eres2net_base_sv_zh-cn_3dspeaker_16k.onnx', 'recognizes voices'],
  ['nemo_en_titanet_small.onnx', 'recognizes voices'],
  ['sherpa-onnx-whisper-base.en', undefined],
  ['kokoro-en-v0_19', undefined],
])('%s is told by its name', (name, kind) => {
  expect(helperKind(name)).toBe(kind);
});
