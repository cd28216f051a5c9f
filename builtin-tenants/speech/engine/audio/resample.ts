/**
 * Changes the sample rate of speech by a windowed sinc filter; block by block, with the tail of one block kept for the next.
 */

const HALF_WIDTH = 16;
/** Positions between two samples for which the filter is computed beforehand. */
const PHASES = 256;

export class Resampler {
  readonly #ratio: number;
  readonly #filters: Float32Array[];
  #history = new Float32Array(HALF_WIDTH * 2);
  /** Position of the next output sample, in input samples from the start of the history. */
  #position = HALF_WIDTH;

  /** @param from samples a second coming in @param to samples a second going out */
  constructor(from: number, to: number) {
    this.#ratio = from / to;
    const cutoff = Math.min(1, to / from) * 0.95;
    this.#filters = Array.from({ length: PHASES }, (_, phase) => filter(phase / PHASES, cutoff));
  }

  push(input: Float32Array): Float32Array {
    const data = new Float32Array(this.#history.length + input.length);
    data.set(this.#history);
    data.set(input, this.#history.length);
    const last = data.length - HALF_WIDTH - 1;
    const output = new Float32Array(Math.max(0, Math.ceil((last - this.#position) / this.#ratio)));
    let written = 0;
    let position = this.#position;
    while (position < last && written < output.length) {
      output[written++] = this.#sample(data, position);
      position += this.#ratio;
    }
    const keep = Math.max(0, Math.floor(position) - HALF_WIDTH);
    this.#history = data.slice(keep);
    this.#position = position - keep;
    return output.subarray(0, written);
  }

  #sample(data: Float32Array, position: number): number {
    const nearest = Math.round(position * PHASES);
    const center = Math.floor(nearest / PHASES);
    const taps = this.#filters[nearest % PHASES];
    if (taps === undefined) return 0;
    const start = center - HALF_WIDTH + 1;
    let sum = 0;
    for (let tap = 0; tap < taps.length; tap++) sum += (data[start + tap] ?? 0) * (taps[tap] ?? 0);
    return sum;
  }
}

/** @param phase how far the wanted position is behind the middle sample, 0 to 1 */
function filter(phase: number, cutoff: number): Float32Array {
  return Float32Array.from({ length: HALF_WIDTH * 2 }, (_, tap) => {
    const distance = phase + HALF_WIDTH - 1 - tap;
    const window = 0.5 + 0.5 * Math.cos((Math.PI * distance) / HALF_WIDTH);
    return sinc(distance * cutoff) * cutoff * window;
  });
}

function sinc(x: number): number {
  return Math.abs(x) < 1e-9 ? 1 : Math.sin(Math.PI * x) / (Math.PI * x);
}
