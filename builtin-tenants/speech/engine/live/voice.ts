/**
 * Tells speech from silence by loudness: a frame is voice where it is well above the quiet that was heard lately. It is
 * enough to cut audio at pauses; what is no speech but loud is heard by the recognizer, which says nothing of it.
 */

/** Samples of a frame: 20 ms at 16 kHz. */
export const FRAME = 320;
/** Of 32768. Below it nothing is voice, however quiet the rest is; above it nothing is quiet. */
const LEAST = 120;
const LOUDEST_QUIET = 2000;
const ABOVE_QUIET = 2.5;
/** How fast the quiet is taken to have become louder, each frame: it doubles in 2.8 s. */
const RISE = 1.005;

export class Voice {
  #quiet = LEAST;

  /** @param frame 16-bit samples */
  isVoice(frame: Int16Array): boolean {
    let sum = 0;
    for (const sample of frame) sum += sample * sample;
    const loudness = Math.sqrt(sum / Math.max(1, frame.length));
    const isVoice = loudness > Math.max(LEAST, this.#quiet * ABOVE_QUIET);
    this.#quiet = loudness < this.#quiet ? (this.#quiet + loudness) / 2 : this.#quiet * RISE;
    this.#quiet = Math.min(LOUDEST_QUIET, Math.max(1, this.#quiet));
    return isVoice;
  }
}
