/**
 * Between a host and its ACME authority: counts what is ordered, and holds a step until the test lets it go on. Also in
 * front of the nodes that the authority validates at, so that a test can say which one it asks.
 */
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { createServer as createHttps, request, type Server } from 'node:https';
import { type AddressInfo, connect, createServer, type Server as NetServer } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { selfSigned } from './authority.ts';

export interface Held {
  /** Resolves when a request is being held. */
  reached: Promise<void>;
  release(): void;
}

interface Hold {
  step: string;
  /** Whether the authority has heard of it, and agreed. */
  when: 'before' | 'after';
  reached: PromiseWithResolvers<void>;
  released: PromiseWithResolvers<void>;
}

export class AcmeGate {
  readonly caFile: string;
  readonly directory: string;
  /** Where the authority validates: `openAuthority` takes it. */
  readonly validation: { httpPort: number; tlsPort: number };
  /** Of the authority itself. */
  authority: URL | undefined;
  /** Names, one for each order. */
  readonly orders: string[] = [];
  finalized = 0;
  readonly #folder: string;
  readonly #servers: { front: Server; doors: NetServer[] };
  readonly #targets: number[];
  #hold: Hold | undefined;

  private constructor(folder: string, caFile: string, front: Server, doors: NetServer[], targets: number[]) {
    this.#folder = folder;
    this.caFile = caFile;
    this.#servers = { front, doors };
    this.#targets = targets;
    this.directory = `https://127.0.0.1:${portOf(front)}/dir`;
    const [httpPort, tlsPort] = doors.map(portOf) as [number, number];
    this.validation = { httpPort, tlsPort };
  }

  static async open(): Promise<AcmeGate> {
    const folder = mkdtempSync(path.join(tmpdir(), 'acme-gate-'));
    const files = { cert: path.join(folder, 'gate.crt'), key: path.join(folder, 'gate.key') };
    selfSigned(['127.0.0.1'], files);
    const front = createHttps({ cert: readFileSync(files.cert), key: readFileSync(files.key) });
    const targets = [0, 0];
    const doors = targets.map((_, at) =>
      createServer((socket) => {
        const other = connect(targets[at] ?? 0, '127.0.0.1');
        socket.pipe(other).pipe(socket);
        socket.on('error', () => other.destroy());
        other.on('error', () => socket.destroy());
      }),
    );
    for (const server of [front, ...doors]) await once(server.listen(0, '127.0.0.1'), 'listening');
    const gate = new AcmeGate(folder, files.cert, front, doors, targets);
    front.on('request', (asked, answer) => void gate.#pass(asked, answer).catch(() => answer.destroy()));
    return gate;
  }

  /** From now on the authority looks there. */
  validateAt(httpPort: number, tlsPort: number): void {
    this.#targets.splice(0, 2, httpPort, tlsPort);
  }

  /** @param step how the path of the next request that is held begins */
  hold(step: string, when: Hold['when']): Held {
    const hold = { step, when, reached: Promise.withResolvers<void>(), released: Promise.withResolvers<void>() };
    this.#hold = hold;
    return { reached: hold.reached.promise, release: hold.released.resolve };
  }

  async close(): Promise<void> {
    const { front, doors } = this.#servers;
    this.#hold?.released.resolve();
    front.closeAllConnections();
    for (const server of [front, ...doors]) server.close();
    rmSync(this.#folder, { recursive: true, force: true });
  }

  async #pass(asked: IncomingMessage, answer: ServerResponse): Promise<void> {
    const chunks: Buffer[] = [];
    for await (const chunk of asked) chunks.push(chunk as Buffer);
    const body = Buffer.concat(chunks);
    await this.#held(asked, 'before');
    const passed = request({
      host: '127.0.0.1',
      port: this.authority?.port,
      path: asked.url,
      method: asked.method,
      // With the name that was asked for, of which the authority makes its addresses.
      headers: asked.headers,
      rejectUnauthorized: false,
      agent: false,
    });
    passed.end(body);
    const [answered] = (await once(passed, 'response')) as [IncomingMessage];
    const parts: Buffer[] = [];
    for await (const chunk of answered) parts.push(chunk as Buffer);
    // Pebble refuses some nonces, to see whether its clients ask again.
    if ((answered.statusCode ?? 500) < 300) {
      this.#count(asked.url ?? '', body);
      await this.#held(asked, 'after');
    }
    answer.writeHead(answered.statusCode ?? 500, answered.headers);
    answer.end(Buffer.concat(parts));
  }

  async #held({ url }: IncomingMessage, when: Hold['when']): Promise<void> {
    const hold = this.#hold;
    if (hold?.when !== when || !url?.startsWith(hold.step)) return;
    this.#hold = undefined;
    hold.reached.resolve();
    await hold.released.promise;
  }

  #count(url: string, body: Buffer): void {
    if (url.startsWith('/finalize-order/')) this.finalized += 1;
    if (!url.startsWith('/order-plz')) return;
    const { payload } = JSON.parse(body.toString()) as { payload: string };
    const { identifiers } = JSON.parse(Buffer.from(payload, 'base64url').toString()) as {
      identifiers: { value: string }[];
    };
    this.orders.push(...identifiers.map(({ value }) => value));
  }
}

function portOf(server: NetServer | Server): number {
  return (server.address() as AddressInfo).port;
}
