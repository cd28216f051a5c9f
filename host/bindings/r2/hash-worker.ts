/** The thread that computes checksums for hashing.ts. */
import { parentPort, receiveMessageOnPort, workerData } from 'node:worker_threads';
import type { Numbered } from '../store-process/thread.ts';
import { HashQueue } from './hash-queue.ts';
import type { HashJob } from './hashing.ts';
import type { SharedMemory } from './wasm-code.ts';

const queue = new HashQueue(workerData as SharedMemory);

parentPort?.on('message', (jobs: Numbered<HashJob>[]) => {
  queue.add(jobs);
  while (queue.busy) {
    const answers = queue.turn();
    if (answers.length > 0) parentPort?.postMessage(answers);
    // Jobs that have come meanwhile join those at work.
    for (let more = receive(); more; more = receive()) queue.add(more);
  }
});

function receive(): Numbered<HashJob>[] | undefined {
  return parentPort ? receiveMessageOnPort(parentPort)?.message : undefined;
}
