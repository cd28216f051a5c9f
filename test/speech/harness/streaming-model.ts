/**
 * The test's recognizer (test/speech/model) as a streaming model, in the layout of sherpa-onnx's streaming zipformers
 * with CTC: the same network, given 0.32 s at a time. What lies before is one of its states, the others of a zipformer
 * are there and mean nothing.
 */
import { copyFileSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { constant, FLOAT, field, fieldsOf, INT64, longs, model, node, value } from './onnx.ts';

export const STREAMING = 'sherpa-onnx-streaming-zipformer-ctc-machine-voices';

const OFFLINE = fileURLToPath(new URL('../model/zipformer-ctc-machine-voices', import.meta.url));
const BINS = 80;
const TOKENS = 664;
/** Frames of 10 ms: a step, what the network is shown of what lies before and after it; four make one of its own. */
const STEP = 32;
const BEFORE = 128;
const AFTER = 64;
const SHORTER = 4;
/** The log energy of silence, which a state of zeros has to stand for. */
const SILENCE = 16;

/** Of one layer, as sherpa-onnx makes them from the metadata (online-zipformer2-ctc-model.cc). */
const STATES: [string, number, number[]][] = [
  ['cached_key_0', FLOAT, [BEFORE, 1, BINS]],
  ['cached_nonlin_attn_0', FLOAT, [1, 1, BEFORE, 3]],
  ['cached_val1_0', FLOAT, [BEFORE, 1, 1]],
  ['cached_val2_0', FLOAT, [BEFORE, 1, 1]],
  ['cached_conv1_0', FLOAT, [1, 4, 1]],
  ['cached_conv2_0', FLOAT, [1, 4, 1]],
  ['embed_states', FLOAT, [1, 128, 3, 19]],
  ['processed_lens', INT64, [1]],
];
const METADATA = {
  model_type: 'zipformer2',
  encoder_dims: 4,
  query_head_dims: BINS,
  value_head_dims: 1,
  num_heads: 1,
  num_encoder_layers: 1,
  cnn_module_kernels: 2,
  left_context_len: BEFORE,
  T: STEP + AFTER,
  decode_chunk_len: STEP,
};

/** @returns the model's folder, in `folder` */
export function makeStreamingModel(folder: string, name = STREAMING): string {
  const place = join(folder, name);
  mkdirSync(place, { recursive: true });
  copyFileSync(join(OFFLINE, 'tokens.txt'), join(place, 'tokens.txt'));
  writeFileSync(join(place, 'ctc-epoch-1-avg-1-chunk-16-left-128.onnx'), streaming());
  return place;
}

function streaming(): Buffer {
  const graph = fieldsOf(readFileSync(join(OFFLINE, 'model.int8.onnx'))).find(({ number }) => number === 7);
  const parts = fieldsOf(graph?.inner ?? Buffer.alloc(0));
  const kept = parts
    .filter(({ number }) => number === 1 || number === 5)
    .map(({ number, whole, inner }) => (number === 1 ? field(1, renamed(inner)) : whole));
  const [first, ...others] = STATES.map(([name]) => name);
  const slice = (given: string, made: string, from: string, to: string, axis: string) =>
    node('Slice', [given, from, to, axis], [made]);
  return model(
    [
      node('Sub', [first ?? '', 'silence'], ['before']),
      node('Transpose', ['before'], ['before.turned'], { perm: [1, 0, 2] }),
      node('Concat', ['before.turned', 'x'], ['window'], { axis: 1 }),
      ...kept,
      slice('all_log_probs', 'log_probs', 'lead', 'lead.end', 'one'),
      slice('window', 'after', 'step', 'step.end', 'one'),
      node('Transpose', ['after'], ['after.turned'], { perm: [1, 0, 2] }),
      node('Add', ['after.turned', 'silence'], [`new_${first}`]),
      ...others.map((name) => node('Identity', [name], [`new_${name}`])),
      constant('silence', [], Float32Array.of(SILENCE)),
      ...Object.entries({
        one: 1,
        lead: BEFORE / SHORTER,
        'lead.end': (BEFORE + STEP) / SHORTER,
        step: STEP,
        'step.end': STEP + BEFORE,
      }).map(([name, number]) => constant(name, [1], longs(number))),
      value(11, 'x', FLOAT, [1, STEP + AFTER, BINS]),
      ...STATES.map(([name, type, dims]) => value(11, name, type, dims)),
      value(12, 'log_probs', FLOAT, [1, STEP / SHORTER, TOKENS]),
      ...STATES.map(([name, type, dims]) => value(12, `new_${name}`, type, dims)),
    ],
    METADATA,
  );
}

/** The network is given the window; and nobody asks how long its answer is. */
function renamed(nodeProto: Buffer): Buffer {
  const names: Record<string, string> = { x: 'window', x_lens: 'step', log_probs: 'all_log_probs' };
  const change = (name: string) => (Object.hasOwn(names, name) ? (names[name] ?? name) : name);
  return Buffer.concat(
    fieldsOf(nodeProto).map(({ number, whole, inner }) =>
      number === 1 || number === 2 ? field(number, change(inner.toString())) : whole,
    ),
  );
}
