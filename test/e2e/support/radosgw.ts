/** A real S3, Ceph's radosgw (scripts/radosgw.mjs). It takes 13 s to start. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { Client, CopyDestinationOptions, CopySourceOptions } from 'minio';
import type { S3Settings } from '../../../host/shared/contracts.ts';

const SCRIPT = fileURLToPath(new URL('../../../scripts/radosgw.mjs', import.meta.url));

export interface S3Access {
  endpoint: string;
  accessKey: string;
  secretKey: string;
}

export class Radosgw {
  readonly access: S3Access;
  readonly #process: ChildProcess;

  private constructor(process: ChildProcess, access: S3Access) {
    this.#process = process;
    this.access = access;
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

  settings(bucket: string): S3Settings {
    return settingsOf(this.access, bucket);
  }

  /** As an operator copies a bucket. @returns how many objects it has */
  async copyBucket(from: string, to: string): Promise<number> {
    const { endpoint, accessKey, secretKey } = this.access;
    const { hostname: endPoint, port } = new URL(endpoint);
    const client = new Client({ endPoint, port: Number(port), useSSL: false, accessKey, secretKey });
    await client.makeBucket(to, 'us-east-1');
    let count = 0;
    for await (const { name } of client.listObjectsV2(from, '', true)) {
      const source = new CopySourceOptions({ Bucket: from, Object: name });
      await client.copyObject(source, new CopyDestinationOptions({ Bucket: to, Object: name }));
      count++;
    }
    return count;
  }

  async stop(): Promise<void> {
    const exited = once(this.#process, 'exit');
    this.#process.stdin?.end();
    await exited;
  }
}

/** Settings of a bucket, which whoever uses it creates. */
export function settingsOf(access: S3Access, bucket: string): S3Settings {
  return { region: 'us-east-1', bucket, prefix: 'turnpike/', ...access };
}
