/**
 * Writes small ONNX models, and changes those that are there: what tests need of onnx.proto (github.com/onnx/onnx), which
 * is few fields. A message is the list of its fields.
 */

type Value = string | number | Uint8Array;

export const FLOAT = 1;
export const INT32 = 6;
export const INT64 = 7;

function varint(value: number): Buffer {
  const bytes: number[] = [];
  let rest = BigInt.asUintN(64, BigInt(value));
  do {
    const more = rest > 0x7fn;
    bytes.push(Number(rest & 0x7fn) | (more ? 0x80 : 0));
    rest >>= 7n;
  } while (rest > 0n);
  return Buffer.from(bytes);
}

/** @param value a number is a varint, all else has a length */
export function field(number: number, value: Value): Buffer {
  if (typeof value === 'number') return Buffer.concat([varint(number << 3), varint(value)]);
  const bytes = typeof value === 'string' ? Buffer.from(value) : value;
  return Buffer.concat([varint((number << 3) | 2), varint(bytes.length), bytes]);
}

/** The fields of a message, each as it is written, and what is in those that have a length. */
export function fieldsOf(message: Buffer): { number: number; whole: Buffer; inner: Buffer }[] {
  const fields: { number: number; whole: Buffer; inner: Buffer }[] = [];
  let at = 0;
  const read = () => {
    let value = 0;
    for (let shift = 0; ; shift += 7) {
      const byte = message[at++] ?? 0;
      value += (byte & 0x7f) * 2 ** shift;
      if (byte < 0x80) return value;
    }
  };
  while (at < message.length) {
    const from = at;
    const tag = read();
    let inner = 0;
    if ((tag & 7) === 0) read();
    else if ((tag & 7) === 5) at += 4;
    else {
      const length = read();
      inner = length;
      at += length;
    }
    fields.push({ number: tag >> 3, whole: message.subarray(from, at), inner: message.subarray(at - inner, at) });
  }
  return fields;
}

/** NodeProto. */
export function node(
  op: string,
  inputs: string[],
  outputs: string[],
  attributes: Record<string, number | number[]> = {},
) {
  const all = Object.entries(attributes).map(([name, value]) => {
    const [content, type] = Array.isArray(value) ? [value.map((one) => field(8, one)), 7] : [[field(3, value)], 2];
    return field(5, Buffer.concat([field(1, name), ...content, field(20, type)]));
  });
  const [given, made] = [inputs.map((name) => field(1, name)), outputs.map((name) => field(2, name))];
  return field(1, Buffer.concat([...given, ...made, field(4, op), ...all]));
}

/** An initializer of a graph: a constant. */
export function constant(name: string, dims: number[], data: Float32Array | BigInt64Array | Int32Array): Buffer {
  const type = data instanceof Float32Array ? FLOAT : data instanceof Int32Array ? INT32 : INT64;
  const raw = Buffer.from(data.buffer, data.byteOffset, data.byteLength);
  return field(5, Buffer.concat([...dims.map((one) => field(1, one)), field(2, type), field(8, name), field(9, raw)]));
}

/** An input (11) or output (12) of a graph. */
export function value(number: 11 | 12, name: string, type: number, dims: (number | string)[]): Buffer {
  const shape = dims.map((one) => field(1, typeof one === 'number' ? field(1, one) : field(2, one)));
  const tensor = Buffer.concat([field(1, type), field(2, Buffer.concat(shape))]);
  return field(number, Buffer.concat([field(1, name), field(2, field(1, tensor))]));
}

/** ModelProto. @param graph nodes, constants, inputs, outputs */
export function model(graph: Uint8Array[], metadata: Record<string, string | number>, opset = 13): Buffer {
  return Buffer.concat([
    field(1, 8),
    field(7, Buffer.concat([field(2, 'made'), ...graph])),
    field(8, Buffer.concat([field(1, ''), field(2, opset)])),
    ...Object.entries(metadata).map(([key, one]) => field(14, Buffer.concat([field(1, key), field(2, String(one))]))),
  ]);
}

export const longs = (...values: number[]) => BigInt64Array.from(values, BigInt);
