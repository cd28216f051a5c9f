/** The server that bindings' calls come to, over real sockets: with a client of ours, and with callers that misbehave. */
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { request } from 'node:http';
import { connect, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { Call } from '../../host/bindings/store-process/calls/call.ts';
import { CallServer } from '../../host/bindings/store-process/listener.ts';

let folder: string;
let path: string;
let server: CallServer;
let handle: (call: Call) => unknown;
let closed: string[];
const sockets: Socket[] = [];

beforeEach(async () => {
  folder = mkdtempSync(join(tmpdir(), 'calls-'));
  path = join(folder, 'r2.sock');
  closed = [];
  server = await CallServer.listen(
    path,
    (call) => {
      call.onClose(() => closed.push(call.target));
      void handle(call);
    },
    (error) => {
      throw error;
    },
  );
});

afterEach(async () => {
  for (const socket of sockets.splice(0)) socket.destroy();
  await server.stop(100);
  rmSync(folder, { recursive: true });
});

async function raw(): Promise<Socket> {
  const socket = connect(path);
  sockets.push(socket);
  socket.on('error', () => {});
  await once(socket, 'connect');
  return socket;
}

/** Reads until `end` has come. */
async function until(socket: Socket, end: string): Promise<string> {
  let got = '';
  while (!got.includes(end)) got += String((await once(socket, 'data'))[0]);
  return got;
}

async function whenTrue(condition: () => boolean): Promise<void> {
  while (!condition()) await nextTurn();
}

const echo = async (call: Call) => {
  const pieces = await call.body.all(10_000_000);
  call.onClose(() => call.body.release());
  call.answer(200, ['X-Method', call.method], pieces);
};

describe('calls', () => {
  it.each([0, 1, 9_000, 70_000, 300_000, 5_000_000])('bring a body of %i bytes and take it back', async (size) => {
    handle = echo;
    const body = Buffer.alloc(size, 'abcdefghij');
    const call = request({ socketPath: path, method: 'PUT', path: '/x', headers: { 'content-length': size } });
    call.end(body);
    const [answer] = await once(call, 'response');
    expect(answer.headers).toMatchObject({ 'x-method': 'PUT', 'content-length': String(size) });
    expect(await text(answer)).toBe(body.toString());
    await whenTrue(() => closed[0] === '/x');
  });

  it('bring bodies in small pieces, several at once, each its own', async () => {
    handle = echo;
    const bodies = Array.from({ length: 8 }, (_, index) =>
      Buffer.from(Array.from({ length: 30_000 + index }, (_, at) => `${index}/${at};`).join('')),
    );
    const calls = bodies.map((body) =>
      request({ socketPath: path, method: 'PUT', path: '/pieces', headers: { 'content-length': body.length } }),
    );
    const answers = calls.map(async (call) => text((await once(call, 'response'))[0]));
    const longest = Math.max(...bodies.map((body) => body.length));
    for (let at = 0; at < longest; at += 5_000) {
      for (const [index, body] of bodies.entries())
        if (at < body.length) calls[index]?.write(body.subarray(at, at + 5_000));
      await nextTurn();
    }
    for (const call of calls) call.end();
    expect(await Promise.all(answers)).toEqual(bodies.map(String));
  });

  it('bring a chunked body, after 100 Continue where they wait for it', async () => {
    handle = echo;
    const call = request({ socketPath: path, method: 'POST', headers: { expect: '100-continue' } });
    call.flushHeaders();
    await once(call, 'continue');
    call.write('abc');
    call.end('def');
    const [answer] = await once(call, 'response');
    expect(await text(answer)).toBe('abcdef');
  });

  it('come one after the other on a connection, also where they are sent together', async () => {
    const seen: string[] = [];
    handle = async (call: Call) => {
      seen.push(call.target);
      await nextTurn();
      expect(seen.at(-1)).toBe(call.target);
      await echo(call);
    };
    const socket = await raw();
    socket.write('PUT /1 HTTP/1.1\r\nContent-Length: 3\r\n\r\nabcPUT /2 HTTP/1.1\r\nContent-Length: 4\r\n\r\nlast');
    const got = await until(socket, 'last');
    expect(got).toMatch(/^HTTP\/1\.1 200 OK\r\n[\s\S]*\r\n\r\nabcHTTP\/1\.1 200 OK\r\n[\s\S]*last$/);
    expect(closed).toEqual(['/1', '/2']);
  });

  it('are open until a slow caller has read their answer', async () => {
    const large = Buffer.alloc(4_000_000, 'x');
    handle = (call: Call) => call.answer(200, [], [Buffer.from('{}'), large]);
    const socket = await raw();
    socket.pause();
    socket.write('GET /large HTTP/1.1\r\n\r\n');
    await once(socket, 'readable');
    expect(closed).toEqual([]);
    let bytes = 0;
    socket.on('data', (chunk) => {
      bytes += chunk.length;
    });
    await whenTrue(() => closed.length > 0);
    await whenTrue(() => bytes > 4_000_000);
    // The connection is as good as before.
    handle = (call: Call) => call.answer(200, [], [Buffer.from('again')]);
    socket.write('GET /again HTTP/1.1\r\n\r\n');
    await whenTrue(() => closed.length > 1);
    expect(closed).toEqual(['/large', '/again']);
  });

  it('stream an answer at the speed of whoever reads it', async () => {
    let made = 0;
    handle = (call: Call) =>
      call.send(
        200,
        [],
        64 * 1_000_000,
        (async function* () {
          for (; made < 64; made++) yield Buffer.alloc(1_000_000, 'x');
        })(),
      );
    const socket = await raw();
    socket.pause();
    socket.write('GET /stream HTTP/1.1\r\n\r\n');
    await once(socket, 'readable');
    for (let turn = 0; turn < 100; turn++) await nextTurn();
    expect(made).toBeLessThan(10);
    let bytes = 0;
    socket.on('data', (chunk) => {
      bytes += chunk.length;
    });
    await whenTrue(() => closed.length > 0 && bytes > 64_000_000);
    expect(made).toBe(64);
  });

  it('tell their source when the caller of a streamed answer goes away', async () => {
    let ended = false;
    handle = (call: Call) =>
      call.send(
        200,
        [],
        1_000_000_000,
        (async function* () {
          try {
            for (;;) yield Buffer.alloc(1_000_000);
          } finally {
            ended = true;
          }
        })(),
      );
    const socket = await raw();
    socket.pause();
    socket.write('GET /gone HTTP/1.1\r\n\r\n');
    await once(socket, 'readable');
    socket.destroy();
    await whenTrue(() => ended);
    expect(closed).toEqual(['/gone']);
  });

  it('cut the connection where a streamed answer fails or ends too early', async () => {
    for (const fails of [true, false]) {
      let thrown: unknown;
      handle = (call: Call) =>
        call
          .send(
            200,
            [],
            100,
            (async function* () {
              yield Buffer.from('some');
              if (fails) throw new Error('no more');
            })(),
          )
          .catch((error) => {
            thrown = error;
          });
      const socket = await raw();
      socket.resume();
      socket.write('GET / HTTP/1.1\r\n\r\n');
      await once(socket, 'close');
      expect(thrown === undefined).toBe(!fails);
    }
  });

  it('see that a caller went away within its body, and before their answer', async () => {
    let failure: unknown;
    handle = (call: Call) =>
      call.body.all(1_000).catch((error) => {
        failure = error;
      });
    const half = await raw();
    half.write('PUT /half HTTP/1.1\r\nContent-Length: 10\r\n\r\nabc');
    await nextTurn();
    half.destroy();
    await whenTrue(() => closed.length > 0);
    expect(failure).toMatchObject({ name: 'BodyCut' });

    let waiting: Call | undefined;
    handle = (call: Call) => {
      waiting = call;
    };
    const whole = await raw();
    whole.write('GET /whole HTTP/1.1\r\n\r\n');
    await whenTrue(() => waiting !== undefined);
    whole.destroy();
    await whenTrue(() => closed.length > 1);
    // An answer that nobody hears is no error.
    waiting?.answer(200, [], [Buffer.from('too late')]);
    expect(closed).toEqual(['/half', '/whole']);
  });

  it.each([
    ['nonsense\r\n\r\n', '400 Bad Request'],
    ['PUT / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n', '400 Bad Request'],
    [`GET / HTTP/1.1\r\nA: ${'x'.repeat(140_000)}\r\n\r\n`, '431 Request Header Fields Too Large'],
  ])('are refused where they are no HTTP, and the others go on', async (bytes, status) => {
    handle = echo;
    const good = await raw();
    const bad = await raw();
    bad.write(bytes);
    expect(await until(bad, '\r\n\r\n')).toContain(`HTTP/1.1 ${status}`);
    bad.resume();
    await once(bad, 'close');
    good.write('GET / HTTP/1.1\r\n\r\n');
    expect(await until(good, '\r\n\r\n')).toContain('200 OK');
  });

  it('cannot have a field that would end its line', async () => {
    let thrown: unknown;
    handle = (call: Call) => {
      try {
        call.answer(200, ['X', 'a\r\nSet-Cookie: b']);
      } catch (error) {
        thrown = error;
        call.cut();
      }
    };
    const socket = await raw();
    socket.resume();
    socket.write('GET / HTTP/1.1\r\n\r\n');
    await once(socket, 'close');
    expect(thrown).toBeInstanceOf(TypeError);
  });

  it('end before the server does, those that take too long are cut', async () => {
    const calls: Call[] = [];
    handle = (call: Call) => void calls.push(call);
    const [idle, quick, slow] = [await raw(), await raw(), await raw()];
    idle.resume();
    quick.write('GET /quick HTTP/1.1\r\n\r\n');
    slow.write('GET /slow HTTP/1.1\r\n\r\n');
    slow.resume();
    await whenTrue(() => calls.length === 2);
    const stopped = server.stop(50);
    await once(idle, 'close');
    calls.find((call) => call.target === '/quick')?.answer(200, [], [Buffer.from('done')]);
    expect(await until(quick, 'done')).toContain('200 OK');
    await stopped;
    await whenTrue(() => closed.length === 2);
    expect(slow.destroyed || slow.readableEnded).toBe(true);
  });
});
