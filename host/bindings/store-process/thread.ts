/** A thread for work that would hold up the event loop that serves all tenants. It starts with its first job. */
import { Worker } from 'node:worker_threads';

/** By its id an answer finds who asked: the thread answers in whatever order it likes. */
export type Numbered<T> = T & { id: number };

export class Thread<Job extends object, Answer extends object> {
  readonly #program: URL;
  readonly #data: unknown;
  readonly #asked = new Map<number, (answer: Answer) => void>();
  #lastId = 0;
  /** Jobs of this turn of the event loop, which go to the thread in one message. */
  #unsent: Numbered<Job>[] = [];
  #worker: Worker | undefined;

  /**
   * @param program gets messages of `Numbered<Job>[]` and answers with messages of `Numbered<Answer>[]`
   * @param data its `workerData`
   */
  constructor(program: URL, data?: unknown) {
    this.#program = program;
    this.#data = data;
  }

  ask(job: Job): Promise<Answer> {
    this.#worker ??= this.#start();
    const id = ++this.#lastId;
    if (this.#unsent.length === 0) setImmediate(() => this.#send());
    this.#unsent.push({ ...job, id });
    return new Promise((resolve) => this.#asked.set(id, resolve));
  }

  /** What was asked and is not answered stays so. */
  async close(): Promise<void> {
    await this.#worker?.terminate();
  }

  #send(): void {
    this.#worker?.postMessage(this.#unsent);
    this.#unsent = [];
  }

  #start(): Worker {
    const worker = new Worker(this.#program, { workerData: this.#data });
    worker.on('message', (answers: Numbered<Answer>[]) => {
      for (const answer of answers) {
        this.#asked.get(answer.id)?.(answer);
        this.#asked.delete(answer.id);
      }
    });
    // Nothing in it can fail but the machine; an error ends the process, which the supervisor starts again.
    worker.on('error', (error) => {
      throw error;
    });
    worker.unref();
    return worker;
  }
}
