/** Starts scripts/radosgw.mjs for a test file, and ends it with it. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import type { S3Settings, StorageInit } from '../../host/shared/contracts.ts';

const SCRIPT = fileURLToPath(new URL('../../scripts/radosgw.mjs', import.meta.url));

type S3Objects = Extract<StorageInit['objects'], { kind: 's3' }>;

export class Radosgw {
  readonly #process: ChildProcess;
  readonly #answer: { endpoint: string; accessKey: string; secretKey: string };

  private constructor(process: ChildProcess, answer: { endpoint: string; accessKey: string; secretKey: string }) {
    this.#process = process;
    this.#answer = answer;
  }

  static async start(): Promise<Radosgw> {
    const child = spawn(process.execPath, [SCRIPT], { stdio: ['pipe', 'pipe', 'inherit'] });
    let text = '';
    for await (const chunk of child.stdout) {
      text += chunk;
      if (text.includes('\n')) return new Radosgw(child, JSON.parse(text));
    }
    throw new Error('radosgw did not start; see above');
  }

  /** Settings of storage.s3 for a bucket, which is created by the storage process. */
  objects(bucket: string): S3Objects {
    return { kind: 's3', ...this.settings(bucket) };
  }

  /** The same as `objects`, for stores of several nodes. */
  settings(bucket: string): S3Settings {
    return { region: 'us-east-1', bucket, prefix: 'turnpike/', ...this.#answer };
  }

  async stop(): Promise<void> {
    const exited = once(this.#process, 'exit');
    this.#process.stdin?.end();
    await exited;
  }
}
