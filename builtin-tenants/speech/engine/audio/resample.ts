/**
 * Changes the sample rate of speech by a windowed sinc filter; block by block, with the tail of one block kept for the next.
 */

const HALF_WIDTH = 16;

export class Resampler {
  readonly #ratio: number;
  readonly #cutoff: number;
  #history = new Float32Array(HALF_WIDTH * 2);
  /** Position of the next output sample, in input samples from the start of the history. */
  #position = HALF_WIDTH;

  /** @param from samples a second coming in @param to samples a second going out */
  constructor(from: number, to: number) {
    this.#ratio = from / to;
    this.#cutoff = Math.min(1, to / from) * 0.95;
  }

  push(input: Float32Array): Float32Array {
    const data = new Float32Array(this.#history.length + input.length);
    data.set(this.#history);
    data.set(input, this.#history.length);
    const last = data.length - HALF_WIDTH;
    const output = new Float32Array(Math.max(0, Math.ceil((last - this.#position) / this.#ratio)));
    let written = 0;
    while (this.#position < last && written < output.length) {
      output[written++] = this.#sample(data, this.#position);
      this.#position += this.#ratio;
    }
    const keep = Math.max(0, Math.floor(this.#position) - HALF_WIDTH);
    this.#history = data.slice(keep);
    this.#position -= keep;
    return output.subarray(0, written);
  }

  #sample(data: Float32Array, position: number): number {
    const center = Math.floor(position);
    let sum = 0;
    for (let index = center - HALF_WIDTH + 1; index <= center + HALF_WIDTH; index++) {
      const distance = position - index;
      const window = 0.5 + 0.5 * Math.cos((Math.PI * distance) / HALF_WIDTH);
      sum += (data[index] ?? 0) * sinc(distance * this.#cutoff) * this.#cutoff * window;
    }
    return sum;
  }
}

function sinc(x: number): number {
  return Math.abs(x) < 1e-9 ? 1 : Math.sin(Math.PI * x) / (Math.PI * x);
}
