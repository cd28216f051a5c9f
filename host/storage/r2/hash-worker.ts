/** The thread that computes checksums for hashing.ts. */
import { hash } from 'node:crypto';
import { parentPort, workerData } from 'node:worker_threads';
import type { HashJob } from './hashing.ts';

const memory = workerData as SharedArrayBuffer;

parentPort?.on('message', ({ offset, length, algorithms }: HashJob) => {
  const bytes = Buffer.from(memory, offset, length);
  parentPort?.postMessage(algorithms.map((algorithm) => hash(algorithm, bytes, 'buffer')));
});
