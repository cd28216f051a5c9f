/**
 * In which order a thread computes the checksums asked of it. MD5s of as many values at once as there are; those that
 * come later join. A lone value waits for nobody: it takes as long as with `node:crypto`, which computes all others.
 */
import { hash } from 'node:crypto';
import { writeSync } from 'node:fs';
import type { Numbered } from '../thread.ts';
import type { HashAlgorithm, HashAnswer, HashJob } from './hashing.ts';
import { Md5Lanes } from './md5-lanes.ts';
import type { SharedMemory } from './wasm-code.ts';

/** @returns the digest in hex */
type HashOne = (algorithm: HashAlgorithm, bytes: Buffer) => string;

export class HashQueue {
  readonly #bytes: Buffer;
  readonly #lanes: Md5Lanes;
  readonly #hashOne: HashOne;
  #waiting: Numbered<HashJob>[] = [];
  #answers: Numbered<HashAnswer>[] = [];

  /** @param hashOne computes what the lanes do not */
  constructor(memory: SharedMemory, hashOne: HashOne = (algorithm, bytes) => hash(algorithm, bytes, 'hex')) {
    this.#bytes = Buffer.from(memory.buffer);
    this.#hashOne = hashOne;
    this.#lanes = new Md5Lanes(memory);
  }

  get busy(): boolean {
    return this.#waiting.length > 0 || this.#lanes.busy > 0;
  }

  add(jobs: Numbered<HashJob>[]): void {
    this.#waiting.push(...jobs);
  }

  /** Works for some 100 µs; answers what has ended. */
  turn(): Numbered<HashAnswer>[] {
    for (const job of this.#waiting.splice(0, this.#lanes.room)) this.#start(job);
    this.#lanes.run();
    const answers = this.#answers;
    this.#answers = [];
    return answers;
  }

  #start(job: Numbered<HashJob>): void {
    if (job.algorithms.includes('md5'))
      this.#lanes.add(job.offset, job.length, (md5) => this.#answer(job, md5.toString('hex')));
    else this.#answer(job);
  }

  #answer({ id, offset, length, algorithms, target }: Numbered<HashJob>, md5?: string): void {
    const bytes = this.#bytes.subarray(offset, offset + length);
    const digest = (algorithm: HashAlgorithm) =>
      algorithm === 'md5' && md5 !== undefined ? md5 : this.#hashOne(algorithm, bytes);
    const answer: Numbered<HashAnswer> = { id, digests: algorithms.map(digest) };
    this.#answers.push(answer);
    if (!target) return;
    try {
      for (let at = 0; at < length; ) at += writeSync(target.descriptor, bytes, at, length - at, target.position + at);
    } catch (error) {
      answer.error = (error as Error).message;
    }
  }
}
