/** Stands before the S3 of the tests: it refuses, lies, or is gone, when it is told to. */
import { once } from 'node:events';
import { Agent, createServer, request, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { pipeline, Transform } from 'node:stream';

export class Door {
  isShut = false;
  refused = 0;
  /** A bit of each piece of what is read is another one, and its length and its tags are as before. */
  lies = false;
  lied = 0;
  readonly #server: Server;
  readonly #agent = new Agent({ keepAlive: true });

  private constructor(target: URL) {
    this.#server = createServer((call, answer) => {
      if (this.isShut) {
        this.refused++;
        call.resume();
        answer.writeHead(503, { 'Content-Type': 'application/xml' }).end('<Error><Code>SlowDown</Code></Error>');
        return;
      }
      const { method, url, headers } = call;
      const to = { host: target.hostname, port: target.port, method, path: url, headers, agent: this.#agent };
      const passed = request(to, (response) => {
        // A node that was killed.
        if (answer.destroyed) return void response.destroy();
        answer.writeHead(response.statusCode ?? 0, response.headers);
        pipeline([response, ...(this.lies && method === 'GET' ? [this.#lie()] : []), answer], () => undefined);
      });
      passed.on('error', () => answer.destroy());
      pipeline(call, passed, () => undefined);
    });
  }

  /** @param path of a socket on which it listens; default: a free port */
  static async open(target: string, path?: string): Promise<Door> {
    const door = new Door(new URL(target));
    const place = path === undefined ? { port: 0, host: '127.0.0.1' } : { path };
    await once(door.#server.listen(place), 'listening');
    return door;
  }

  #lie(): Transform {
    return new Transform({
      transform: (piece: Buffer, _encoding, done) => {
        const other = Buffer.from(piece);
        const at = other.length >> 1;
        other[at] = (other[at] ?? 0) ^ 1;
        this.lied++;
        done(null, other);
      },
    });
  }

  get endpoint(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  close(): void {
    this.#server.close();
    this.#server.closeAllConnections();
    this.#agent.destroy();
  }
}
