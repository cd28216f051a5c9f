/**
 * By which name workerd's cluster mode keeps the objects of a class in its bucket. Only workerd knows how that is made of
 * the class' id, so a workerd with nothing but a worker of ours is asked: it writes an object of each.
 */
import { spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { type AddressInfo, createServer, type Server } from 'node:net';
import path from 'node:path';
import type { Readable } from 'node:stream';
import { pino } from 'pino';
import { credentialsOf, peerKeyOf, REGION } from './credentials.ts';
import { BucketGateway } from './gateway.ts';
import type { BucketRecords } from './records.ts';
import { BUCKET } from './request.ts';

const LOOPBACK = '127.0.0.1';
/** Of a tenant that is none. */
const ASKER = 'move';
const QUOTA = 1_048_576;
const CODE = `
import { DurableObject } from 'cloudflare:workers';
export class One extends DurableObject {
  async write() { await this.ctx.storage.put('a', 1); await this.ctx.storage.sync(); }
}
export default {
  async fetch(request, env) {
    await env[new URL(request.url).pathname.slice(1)].getByName('one').write();
    return new Response('written');
  },
};`;

/** @param ids of classes @returns names by ids */
export async function namesOfNamespaces(
  binary: string,
  records: BucketRecords,
  ids: string[],
  folder: string,
): Promise<Map<string, string>> {
  const place = await mkdtemp(path.join(folder, 'names-'));
  const secret = randomBytes(32);
  const credentials = credentialsOf(secret, ASKER);
  const gateway = new BucketGateway({ records, log: pino({ level: 'silent' }) });
  const entrance = gateway.entrance({ tenant: ASKER, credentials, quotaBytes: QUOTA });
  const bucket = createServer({ pauseOnConnect: true }, entrance);
  const names = new Map<string, string>();
  try {
    await records.purge(ASKER);
    const [port, own] = [await listening(bucket), await freePort()];
    const options = [
      `aws_endpoint=http://${LOOPBACK}:${port}`,
      `aws_region=${REGION}`,
      `aws_access_key_id=${credentials.accessKey}`,
      `aws_secret_access_key=${credentials.secretKey}`,
    ];
    const cluster = `bucket = "s3://${BUCKET}/${ASKER}", bucketOptions = ${list(options)}, key = "${peerKeyOf(secret, ASKER)}",
  address = "${LOOPBACK}:${own}", advertise = "${LOOPBACK}:${own}", stopTimeoutMs = 4000`;
    const ask = await startAsker(binary, place, ids, cluster);
    try {
      for (const [index, id] of ids.entries()) {
        const known = new Set(names.values());
        await ask.write(index);
        const found = await records.list(ASKER, 'v1/do/', '', 10 * ids.length);
        const name = found.map(({ key }) => key.split('/')[2] ?? '').find((one) => !known.has(one));
        if (name === undefined) throw new Error(`workerd has no name for the class ${id}`);
        names.set(id, name);
      }
    } finally {
      await ask.stop();
    }
    return names;
  } finally {
    bucket.close();
    gateway.close();
    await records.purge(ASKER);
    await rm(place, { recursive: true, force: true });
  }
}

async function startAsker(
  binary: string,
  folder: string,
  ids: string[],
  cluster: string,
): Promise<{ write(index: number): Promise<void>; stop(): Promise<void> }> {
  const classes = ids.map(
    (id, index) => `(className = "C${index}", uniqueKey = ${JSON.stringify(id)}, enableSql = true)`,
  );
  const bindings = ids.map((_id, index) => `(name = "c${index}", durableObjectNamespace = "C${index}")`);
  const exports = ids.map((_id, index) => `export class C${index} extends One {}`).join('\n');
  await mkdir(path.join(folder, 'disk'));
  await writeFile(path.join(folder, 'main.js'), CODE.replace('export class One', 'class One') + exports);
  const config = path.join(folder, 'workerd.capnp');
  await writeFile(
    config,
    `using Workerd = import "/workerd/workerd.capnp";
const config :Workerd.Config = (
  services = [(name = "main", worker = .main), (name = "disk", disk = (path = "${path.join(folder, 'disk')}", writable = true))],
  sockets = [(name = "http", address = "${LOOPBACK}:0", http = (), service = "main")],
  cluster = (${cluster}));
const main :Workerd.Worker = (
  modules = [(name = "main.js", esModule = embed "main.js")],
  compatibilityDate = "2026-11-01",
  durableObjectNamespaces = [${classes.join(', ')}],
  durableObjectStorage = (localDisk = "disk"),
  bindings = [${bindings.join(', ')}]);
`,
  );
  const args = ['serve', '--experimental', '--control-fd=3', config];
  const child = spawn(binary, args, { stdio: ['ignore', 'ignore', 'pipe', 'pipe'], env: {} });
  const exited = once(child, 'exit');
  let errors = '';
  child.stderr?.on('data', (piece) => {
    errors += piece;
  });
  const port = await new Promise<number>((resolve, reject) => {
    let said = '';
    (child.stdio[3] as Readable).on('data', (piece) => {
      said += piece;
      for (const line of said.split('\n')) {
        const found = /"socket":\s*"http".*"port":\s*(\d+)/.exec(line)?.[1];
        if (found !== undefined) resolve(Number(found));
      }
    });
    exited.then(() => reject(new Error(`workerd did not start: ${errors.slice(0, 500)}`)), reject);
  });
  return {
    async write(index) {
      const answer = await fetch(`http://${LOOPBACK}:${port}/c${index}`);
      if (!answer.ok) throw new Error(`workerd wrote no object: ${answer.status} ${errors.slice(0, 500)}`);
    },
    async stop() {
      child.kill();
      await exited;
    },
  };
}

function list(texts: string[]): string {
  return `[${texts.map((text) => JSON.stringify(text)).join(', ')}]`;
}

async function listening(server: Server, port = 0): Promise<number> {
  server.listen(port, LOOPBACK);
  await once(server, 'listening');
  return (server.address() as AddressInfo).port;
}

async function freePort(): Promise<number> {
  const server = createServer();
  const port = await listening(server);
  server.close();
  await once(server, 'close');
  return port;
}
