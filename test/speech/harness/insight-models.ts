/**
 * Models that tell speakers apart and that punctuate, in the layouts of those that sherpa-onnx publishes: a segmentation
 * of pyannote, an embedding of wespeaker, a CT-transformer. They are small enough to be written here: loudness is speech,
 * the pitch of a voice is who speaks, and some words end sentences. What they say is right for flite's voices rms
 * and slt, and for the sentences of the tests.
 */
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { constant, FLOAT, INT32, model, node, value } from './onnx.ts';

const SEGMENTATION = 'sherpa-onnx-pyannote-segmentation-loudness';
const EMBEDDING = 'wespeaker_en_pitch.onnx';
const PUNCTUATION = 'sherpa-onnx-punct-ct-transformer-en-words';

const WINDOW = 16_000;
const FIELD = { size: 991, shift: 270 };
/** Nobody, one of three, two of three. */
const CLASSES = 7;
/** Mean square of samples, above which somebody speaks. */
const LOUD = 1e-4;

export function makeSegmentation(folder: string): string {
  const place = join(folder, SEGMENTATION);
  mkdirSync(place, { recursive: true });
  const weights = new Float32Array(CLASSES);
  const bias = new Float32Array(CLASSES).fill(-1000);
  weights[1] = 1 / LOUD;
  bias[1] = 0;
  bias[0] = 1;
  const made = model(
    [
      node('Mul', ['x', 'x'], ['square']),
      node('AveragePool', ['square'], ['loudness'], { kernel_shape: [FIELD.size], strides: [FIELD.shift] }),
      node('Conv', ['loudness', 'weights', 'bias'], ['classes']),
      node('Transpose', ['classes'], ['y'], { perm: [0, 2, 1] }),
      constant('weights', [CLASSES, 1, 1], weights),
      constant('bias', [CLASSES], bias),
      value(11, 'x', FLOAT, ['N', 1, 'T']),
      value(12, 'y', FLOAT, ['N', 'F', CLASSES]),
    ],
    {
      model_type: 'pyannote-segmentation-3.0',
      sample_rate: 16_000,
      window_size: WINDOW,
      receptive_field_size: FIELD.size,
      receptive_field_shift: FIELD.shift,
      num_speakers: 3,
      powerset_max_classes: 2,
      num_classes: CLASSES,
    },
  );
  writeFileSync(join(place, 'model.onnx'), made);
  return place;
}

const BINS = 80;
/** Of the filter bank: about 100 Hz, where a man's voice has its pitch, and 200 Hz, where a woman's has. */
const MAN = [2, 3];
const WOMAN = [6, 7];
/** What the first have more than the others: between the two voices. */
const BETWEEN = -4;

export function makeEmbedding(folder: string): string {
  const place = join(folder, EMBEDDING);
  const contrast = Float32Array.from(
    { length: BINS },
    (_, bin) => Number(MAN.includes(bin)) - Number(WOMAN.includes(bin)),
  );
  const made = model(
    [
      node('ReduceMean', ['x'], ['mean'], { axes: [1], keepdims: 0 }),
      node('MatMul', ['mean', 'contrast'], ['pitch']),
      node('Sub', ['pitch', 'between'], ['side']),
      node('Mul', ['pitch', 'zero'], ['none']),
      node('Add', ['none', 'tenth'], ['steady']),
      node('Concat', ['side', 'steady'], ['embs'], { axis: 1 }),
      constant('contrast', [BINS, 1], contrast),
      constant('between', [], Float32Array.of(BETWEEN)),
      constant('zero', [], Float32Array.of(0)),
      constant('tenth', [], Float32Array.of(0.1)),
      value(11, 'x', FLOAT, ['N', 'T', BINS]),
      value(12, 'embs', FLOAT, ['N', 2]),
    ],
    {
      framework: 'wespeaker',
      language: 'English',
      output_dim: 2,
      sample_rate: 16_000,
      normalize_samples: 0,
    },
  );
  writeFileSync(place, made);
  return place;
}

const MARKS = ['<unk>', '_', '，', '。', '？', '、'];

/** Words of the tests that a mark is behind. */
const ENDS: Record<string, string> = { morning: '，', park: '。', sun: '。', river: '。', them: '？' };

export function makePunctuation(folder: string): string {
  const place = join(folder, PUNCTUATION);
  mkdirSync(place, { recursive: true });
  const words = ['<unk>', ...Object.keys(ENDS)];
  const scores = new Float32Array(words.length * MARKS.length);
  for (const [at, word] of words.entries()) scores[at * MARKS.length + MARKS.indexOf(ENDS[word] ?? '_')] = 1;
  const made = model(
    [
      node('Gather', ['scores', 'inputs'], ['logits']),
      constant('scores', [words.length, MARKS.length], scores),
      value(11, 'inputs', INT32, ['N', 'T']),
      value(11, 'text_lengths', INT32, ['N']),
      value(12, 'logits', FLOAT, ['N', 'T', MARKS.length]),
    ],
    {
      model_type: 'ct_transformer',
      tokens: words.join('|'),
      vocab_size: words.length,
      punctuations: MARKS.join('|'),
      unk_symbol: '<unk>',
    },
  );
  writeFileSync(join(place, 'model.onnx'), made);
  return place;
}
