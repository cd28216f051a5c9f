/** A libSQL server that answers whatever it likes: bounded time and memory, errors are told, nothing false is taken. */
import { createServer, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterEach, expect, it } from 'vitest';
import { DEFAULT_LIMITS } from '../../../host/bindings/d1/limits.ts';
import { RemoteStore } from '../../../host/bindings/d1/remote-store.ts';

let server: Server | undefined;
let connections = 0;

afterEach(() => {
  server?.closeAllConnections();
  server?.close();
});

interface Asked {
  requests: { batch?: { steps: { stmt: { sql: string } }[] } }[];
}

async function at(answer: (asked: Asked, response: ServerResponse) => void, limits = {}) {
  connections = 0;
  const opened = createServer((request, response) => {
    let text = '';
    request.on('data', (chunk: Buffer) => {
      text += chunk.toString();
    });
    request.on('end', () => answer(JSON.parse(text) as Asked, response));
  }).on('connection', () => connections++);
  server = opened;
  await new Promise<void>((resolve) => opened.listen(0, '127.0.0.1', resolve));
  const url = `http://127.0.0.1:${(opened.address() as AddressInfo).port}`;
  return new RemoteStore({ url, token: '', namespace: 't' } as ConstructorParameters<typeof RemoteStore>[0], {
    ...DEFAULT_LIMITS,
    timeoutMs: 500,
    ...limits,
  });
}

const READ = [{ sql: 'SELECT 1 AS a', parameters: [] }];
const WRITE = [{ sql: 'INSERT INTO t VALUES (1)', parameters: [] }];
const INTEGER = { type: 'integer', value: '1' };
const step = (rows: unknown, cols: unknown = [{ name: 'a' }]) => ({ cols, rows });
const done = (results: unknown, errors: unknown) =>
  JSON.stringify({
    baton: null,
    results: [{ type: 'ok', response: { type: 'batch', result: { step_results: results, step_errors: errors } } }],
  });

it('takes what is right', async () => {
  const store = await at((_, response) => response.end(done([step([[INTEGER]])], [null])));
  expect((await store.run(READ))[0]?.rows).toEqual([[1]]);
});

it.each<[string, string]>([
  ['no JSON', '<html>'],
  ['null', 'null'],
  ['a number', '7'],
  ['no results', '{}'],
  ['results of another type', '{"results":{"0":1}}'],
  ['a result without a response', '{"results":[{"type":"ok"}]}'],
  ['an error without a message', '{"results":[{"type":"error","error":{"code":1}}]}'],
  ['steps that are missing', done([], [])],
  ['more steps than were asked for', done([step([]), step([])], [null, null])],
  ['a step that was left out', done([null], [null])],
  ['rows of another type', done([step({ length: 2 ** 31 })], [null])],
  ['a row of another width', done([step([[INTEGER, INTEGER]])], [null])],
  ['a row that is none', done([step(['x'])], [null])],
  ['a value of no type', done([step([['x']])], [null])],
  ['a value of an unknown type', done([step([[{ type: 'symbol', value: {} }]])], [null])],
  ['an integer that is none', done([step([[{ type: 'integer', value: 'NaN' }]])], [null])],
  ['text that is an object', done([step([[{ type: 'text', value: { toString: 1 } }]])], [null])],
  ['a blob that says it is large', done([step([[{ type: 'blob', base64: { length: 2 ** 31 } }]])], [null])],
  ['deep nesting', `${'['.repeat(1_000_000)}`],
  ['nesting that ends', `{"results":${'['.repeat(500_000)}${']'.repeat(500_000)}}`],
])('%s is an error', async (_, body) => {
  const store = await at((_asked, response) => response.end(body));
  const before = process.memoryUsage().arrayBuffers;
  await expect(store.run(READ)).rejects.toThrow();
  expect(process.memoryUsage().arrayBuffers - before).toBeLessThan(64 * 1_048_576);
});

it('a write that the server did not commit is an error', async () => {
  const store = await at(({ requests }, response) => {
    const steps = requests[0]?.batch?.steps ?? [];
    const results = steps.map(({ stmt }) => (/^(COMMIT|ROLLBACK)/.test(stmt.sql) ? null : step([[INTEGER]])));
    response.end(
      done(
        results,
        steps.map(() => null),
      ),
    );
  });
  await expect(store.run(WRITE)).rejects.toThrow('left steps out');
});

it('another status or another address is not followed, nor taken', async () => {
  for (const status of [302, 307, 500]) {
    const store = await at((_, response) =>
      response.writeHead(status, { location: 'http://169.254.169.254/' }).end(done([step([[INTEGER]])], [null])),
    );
    await expect(store.run(READ)).rejects.toThrow(`answered ${status}`);
    expect(connections).toBe(1);
    server?.closeAllConnections();
    server?.close();
  }
});

it('rows without an end are given up', async () => {
  let sent = 0;
  const store = await at(
    (_, response) => {
      const row = Buffer.from(`${'[{"type":"integer","value":"1"}],'.repeat(2_000)}`);
      const more = (): void => {
        while (!response.destroyed) {
          sent += row.length;
          if (!response.write(row)) break;
        }
      };
      response.on('drain', more);
      response.write(
        '{"results":[{"type":"ok","response":{"result":{"step_errors":[null],"step_results":[{"cols":[{"name":"a"}],"rows":[',
      );
      more();
    },
    { timeoutMs: 20_000, maxResultBytes: 1_048_576 },
  );
  await expect(store.run(READ)).rejects.toThrow('too large');
  expect(sent).toBeLessThan(64 * 1_048_576);
});

it.each<[string, (response: ServerResponse) => void]>([
  ['nothing', () => undefined],
  [
    'a trickle',
    (response) => {
      const timer = setInterval(() => response.write(' '), 20);
      response.once('close', () => clearInterval(timer));
    },
  ],
])('%s is given up in time', async (_, answer) => {
  const store = await at((_asked, response) => answer(response));
  await expect(store.run(READ)).rejects.toThrow();
});

it('a reset in the middle is an error', async () => {
  const store = await at((_, response) => {
    response.writeHead(200, { 'content-length': 1_000 });
    response.write('{"results":[', () => response.destroy());
  });
  await expect(store.run(READ)).rejects.toThrow();
});
