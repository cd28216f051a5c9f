/** Analytics Engine, Tail Workers and Workers AI on one host: what handlers see, what owners ask, whom it is kept from. */
import { globSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import http from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { setTimeout as delay } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { deploy, type Fetch, jsonPost, jsonPut, mppFetch } from './support/callers.ts';
import { startHost, type TestHost } from './support/host.ts';
import { turnpike } from './support/turnpike-here.ts';

const KEY = 'sk-of-the-operator-8d1f';
const RECORDER = `
export default {
  async fetch(request, env) {
    const { pathname, searchParams } = new URL(request.url);
    const number = (name, other) => Number(searchParams.get(name) ?? other);
    try {
      let answer;
      for (let at = 0; at < number('n', 1); at++)
        answer = env.VISITS.writeDataPoint({ indexes: [searchParams.get('i') ?? 'one'], blobs: [pathname, 'é'.repeat(number('size', 0))], doubles: [at, 0.5] });
      if (pathname === '/bad') env.VISITS.writeDataPoint(JSON.parse(searchParams.get('point')));
      if (pathname === '/second') env.OTHER.writeDataPoint({ blobs: ['other'] });
      return Response.json(String(answer));
    } catch (error) {
      return Response.json(String(error));
    }
  },
};
`;
const PRODUCER = `
export class Box {}
export default {
  async fetch(request, env, ctx) {
    const { pathname } = new URL(request.url);
    console.log('at', pathname, { n: 1 });
    if (pathname === '/throws') throw new RangeError('thrown');
    return new Response('made', { status: 201 });
  },
  async scheduled() { console.warn('by the clock'); },
};
`;
const CONSUMER = `
export default {
  async tail(events, env) {
    for (const event of events) {
      await env.STORE.put(event.scriptName + ' ' + event.eventTimestamp + ' ' + crypto.randomUUID(), JSON.stringify(event));
      if (event.event?.request?.url.includes('/tail-throws')) throw new Error('not today');
    }
  },
  async fetch(request, env) {
    const { keys } = await env.STORE.list();
    return Response.json(await Promise.all(keys.map(({ name }) => env.STORE.get(name, 'json'))));
  },
};
`;
const ASKER = `
export default {
  async fetch(request, env) {
    const { model, inputs, options } = await request.json();
    try {
      if (model === undefined) return Response.json(await env.AI.models());
      const answer = await env.AI.run(model, inputs, options);
      return answer instanceof ReadableStream ? new Response(answer, { headers: { 'content-type': 'text/event-stream' } }) : Response.json(answer);
    } catch (error) {
      return Response.json({ error: error.name + ': ' + error.message }, { status: 500 });
    }
  },
};
`;

/** An OpenAI-compatible server; the model says how it behaves. */
const asked: { path: string; key: string | undefined; body: Record<string, unknown> }[] = [];
let stuck = 0;
const models = http.createServer(async (request, response) => {
  const parts: Buffer[] = [];
  for await (const part of request) parts.push(part as Buffer);
  const body = JSON.parse(Buffer.concat(parts).toString());
  asked.push({ path: request.url ?? '', key: request.headers.authorization, body });
  const json = (value: unknown, status = 200) =>
    response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(value));
  const events = (...all: unknown[]) => {
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    for (const one of all) response.write(`data: ${typeof one === 'string' ? one : JSON.stringify(one)}\r\n\r\n`);
  };
  switch (body.model) {
    case 'endless': {
      response.writeHead(200, { 'content-type': body.stream ? 'text/event-stream' : 'application/json' });
      const more = () => {
        while (!response.destroyed && response.write(`data: ${'x'.repeat(60_000)}\n`));
      };
      response.on('drain', more);
      return more();
    }
    case 'broken':
      if (body.stream) return events({ choices: [{ delta: { content: 'a' } }] }, '{broken');
      return response.end('{broken');
    case 'slow':
      stuck++;
      request.socket.on('close', () => stuck--);
      return;
    case 'angry':
      return json({ error: { message: `Incorrect API key provided: ${KEY}` } }, 401);
    case 'elsewhere':
      return response.writeHead(302, { location: 'http://127.0.0.1:1/' }).end();
  }
  if (request.url?.endsWith('/embeddings'))
    return json({ data: (body.input as string[]).map((text, index) => ({ index, embedding: [text.length, 0.5] })) });
  if (!body.stream)
    return json({ choices: [{ message: { role: 'assistant', content: 'Hello.' } }], usage: { total_tokens: 7 } });
  events(
    { choices: [{ delta: { content: 'Hel' } }] },
    { choices: [{ delta: { content: 'lo' } }] },
    { choices: [], usage: { total_tokens: 7 } },
    '[DONE]',
  );
  response.end();
});

let host: TestHost;
let owner: Fetch;
let stranger: Fetch;
beforeAll(async () => {
  await new Promise<void>((resolve) => models.listen(0, '127.0.0.1', resolve));
  const names = {
    '@cf/meta/llama': 'llama',
    '@cf/baai/bge': 'bge',
    endless: 'endless',
    broken: 'broken',
    slow: 'slow',
    angry: 'angry',
    elsewhere: 'elsewhere',
  };
  host = await startHost({
    flags: {
      'log-level': 'error',
      'ai-url': `http://127.0.0.1:${(models.address() as AddressInfo).port}/v1`,
      'ai-models': JSON.stringify(names),
      'ai-timeout-ms': '1500',
      'ai-requests-in-flight': '2',
      'storage-analytics-bytes': '4000000',
    },
    env: { TURNPIKE_AI_KEY: KEY },
  });
  owner = mppFetch(host.network, 0);
  stranger = mppFetch(host.network, 1);
  const analytics = { VISITS: { dataset: 'visits' }, OTHER: {} };
  await deploy(owner, host.url, { slug: 'recorder', code: RECORDER, bindings: { analytics } });
});
afterAll(async () => {
  await host?.stop();
  models.closeAllConnections();
  models.close();
  if (host) rmSync(host.data, { recursive: true, force: true });
});

// biome-ignore lint/suspicious/noExplicitAny: answers of many forms
const call = async (path: string): Promise<any> => (await fetch(`${host.url}/${path}`)).json();
const query = (sql: string, who = owner, slug = 'recorder') =>
  who(`${host.url}/_admin/${slug}/data/VISITS`, jsonPost({ query: sql }));
// biome-ignore lint/suspicious/noExplicitAny: rows of any form
const rows = async (sql: string): Promise<any[]> => {
  const answer = await query(sql);
  const text = await answer.text();
  if (!answer.ok) throw new Error(text);
  return JSON.parse(text).data;
};
/** @returns how many processes of the database of data points were killed */
function killSql(): number {
  const killed = readdirSync('/proc').filter((pid) => {
    try {
      const isSql = readFileSync(`/proc/${pid}/cmdline`, 'utf8').includes('d1.mjs');
      if (!isSql || !readFileSync(`/proc/${pid}/mountinfo`, 'utf8').includes(host.data)) return false;
      return process.kill(Number(pid), 'SIGKILL');
    } catch {
      return false;
    }
  });
  return killed.length;
}

/** What was recorded is there a moment later. */
const found = (sql: string) => expect.poll(() => rows(sql));

describe('Analytics Engine', () => {
  it('data points are found by SQL, by dataset', async () => {
    expect(await call('recorder/a?n=3')).toBe('undefined');
    expect(await call('recorder/second?i=two&size=2')).toBe('undefined');
    await found(
      'SELECT blob1 AS path, SUM(_sample_interval) AS n, max(double1) AS most FROM visits GROUP BY path ORDER BY path',
    ).toEqual([
      { path: '/a', n: 3, most: 2 },
      { path: '/second', n: 1, most: 0 },
    ]);
    await found(
      "SELECT index1, blob2, dataset FROM visits WHERE timestamp > NOW() - INTERVAL '1' MINUTE AND index1 = 'two'",
    ).toEqual([{ index1: 'two', blob2: 'éé', dataset: 'visits' }]);
    await found('SELECT blob1 FROM OTHER').toEqual([{ blob1: 'other' }]);
    await found('SHOW TABLES').toEqual([{ dataset: 'OTHER' }, { dataset: 'visits' }]);
  });

  it('what is past a limit is not kept, and the handler does not notice', async () => {
    const bad = [
      '{"indexes":["a","b"]}',
      `{"indexes":["${'x'.repeat(97)}"]}`,
      `{"blobs":[${Array.from({ length: 21 }, () => '"a"')}]}`,
      `{"blobs":["${'x'.repeat(16_001)}"]}`,
      `{"doubles":[${Array.from({ length: 21 }, () => 1)}]}`,
    ];
    for (const point of bad)
      expect(await call(`recorder/bad?n=0&point=${encodeURIComponent(point)}`)).toBe('undefined');
    expect(await call('recorder/many?n=300&size=3000')).toBe('undefined');
    await found(
      "SELECT blob1, count() AS n FROM visits WHERE blob1 <> '/a' AND blob1 <> '/second' GROUP BY blob1",
    ).toEqual([{ blob1: '/many', n: 250 }]);
    const log = await (await owner(`${host.url}/_admin/recorder/logs`)).text();
    for (const why of [
      /Maximum of 1 indexes/,
      /indexes\[0\] exceeds 96/,
      /20 blobs/,
      /exceeds 16000/,
      /20 doubles/,
      /250 data points/,
    ])
      expect(log).toMatch(why);
  });

  it('past the quota the oldest go, and the newest are there', async () => {
    for (let turn = 1; turn <= 6; turn++) {
      expect(await call(`recorder/turn${turn}?n=240&size=3000`)).toBe('undefined');
      await found(`SELECT count() AS n FROM visits WHERE blob1 = '/turn${turn}'`).toEqual([{ n: 240 }]);
    }
    const kept = await rows(
      "SELECT blob1, count() AS n FROM visits WHERE blob1 LIKE '/turn%' GROUP BY blob1 ORDER BY blob1",
    );
    expect(kept.at(-1)).toEqual({ blob1: '/turn6', n: 240 });
    expect(kept.at(0)?.blob1).not.toBe('/turn1');
    const usage = await (await owner(`${host.url}/_admin/recorder/usage`)).text();
    const bytes = Number(/"analyticsBytes":(\d+)/.exec(usage)?.[1]);
    expect(bytes).toBeGreaterThan(1_000_000);
    expect(bytes).toBeLessThan(12_000_000);
    const log = await (await owner(`${host.url}/_admin/recorder/logs`)).text();
    expect(/data points were not kept[^"]*/.exec(log)?.[0]).toBeUndefined();
  });

  it('kill -9 of the SQL process takes no point and doubles none', async () => {
    let sent = 0;
    for (let kills = 0; kills < 3; kills++) {
      const from = sent;
      do {
        expect(await call(`recorder/mortal?i=${sent++}`)).toBe('undefined');
      } while (sent < from + 30);
      await expect.poll(() => killSql()).toBeGreaterThan(0);
    }
    await found("SELECT count() AS n, count(DISTINCT index1) AS points FROM visits WHERE blob1 = '/mortal'").toEqual([
      { n: sent, points: sent },
    ]);
  });

  it('a query only reads, and only what is its own', async () => {
    expect((await query('DELETE FROM visits')).status).toBe(400);
    expect(await (await query('SELECT * FROM nowhere')).text()).toMatch(/no such table: nowhere/);
    expect((await query('SELECT 1', stranger)).status).toBe(403);
    expect((await query("SELECT readfile('/etc/passwd')")).status).toBe(400);
    const long = await query(
      'WITH RECURSIVE x(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM x LIMIT 20000) SELECT n FROM x',
    );
    expect(await long.text()).toMatch(/10000 rows/);
  });

  it('the command shows rows', async () => {
    const flags = ['--host-url', host.url, '--data', host.data];
    const { stdout, stderr } = await turnpike(
      [
        ...flags,
        'analytics',
        'query',
        'recorder',
        'SELECT blob1, count() AS n FROM visits GROUP BY blob1 HAVING n > 1',
      ],
      { cwd: host.data },
    );
    expect(stderr).toBe('');
    expect(stdout).toMatch(/blob1 +n\n(?:\/.*\n)*\/turn6 +240/);
  });
});

describe('Tail Workers', () => {
  const tails = { LOGS: { service: 'logger' } };
  const tailed = async () => (await call('logger/')) as Record<string, never>[];

  it('are of the same owner, have a tail(), and are another deployment', async () => {
    const refused = async (who: Fetch, slug: string, service: string) => {
      const body = { slug, code: PRODUCER, bindings: { tails: { LOGS: { service } } } };
      const answer = await who(`${host.url}/_admin/deploy`, jsonPost(body));
      expect(answer.status).toBe(400);
      return answer.text();
    };
    expect(await refused(owner, 'producer', 'logger')).toMatch(/logger, which is not deployed/);
    await deploy(owner, host.url, { slug: 'logger', code: CONSUMER, bindings: { kv: true } });
    expect(await refused(stranger, 'theirs', 'logger')).toMatch(/logger belongs to another owner/);
    expect(await refused(owner, 'itself', 'itself')).toMatch(/itself/);
    expect(await refused(owner, 'producer', 'recorder')).toMatch(/recorder, whose code exports no tail/);
  });

  it('get the trace of each invocation, redacted', async () => {
    await deploy(owner, host.url, { slug: 'producer', code: PRODUCER, bindings: { tails } });
    await fetch(`${host.url}/producer/first?q=1`, {
      headers: { authorization: 'Bearer secret-token', 'x-plain': 'plain' },
    });
    await fetch(`${host.url}/producer/throws`);
    await expect.poll(async () => (await tailed()).length).toBe(2);
    const [first, second] = await tailed();
    expect(first).toMatchObject({
      scriptName: 'producer',
      outcome: 'ok',
      exceptions: [],
      eventTimestamp: expect.any(Number),
      logs: [{ level: 'log', message: ['at', '/first', { n: 1 }], timestamp: expect.any(Number) }],
      event: {
        request: { method: 'GET', headers: { 'x-plain': 'plain', authorization: 'REDACTED' } },
        response: { status: 201 },
      },
    });
    expect(JSON.stringify(first)).toMatch(/\/first\?q=1"/);
    expect(JSON.stringify(first)).not.toMatch(/secret-token|x-turnpike/);
    expect(second).toMatchObject({ outcome: 'exception', exceptions: [{ name: 'RangeError', message: 'thrown' }] });
  });

  it('that tail each other, or fail, do not go on', async () => {
    await owner(
      `${host.url}/_admin/code/logger`,
      jsonPut({ bindings: { kv: true, tails: { BACK: { service: 'logger2' } } } }),
    );
    await deploy(owner, host.url, { slug: 'logger2', code: CONSUMER, bindings: { kv: true, tails } });
    const back = await owner(
      `${host.url}/_admin/code/logger`,
      jsonPut({ bindings: { kv: true, tails: { BACK: { service: 'logger2' } } } }),
    );
    expect(back.status).toBe(200);
    await fetch(`${host.url}/producer/tail-throws`);
    await expect.poll(async () => JSON.stringify(await tailed())).toMatch(/tail-throws/);
    const log = async () => (await owner(`${host.url}/_admin/logger/logs`)).text();
    await expect.poll(log).toMatch(/not today/);
    const seen = (await call('logger2/')) as { event: { rpcMethod?: string } }[];
    expect(seen.filter(({ event }) => event?.rpcMethod === 'tail')).toEqual([]);
  });

  it('that are slow or gone are in nobody’s way', async () => {
    const before = await (await owner(`${host.url}/_admin/logger/usage`)).text();
    expect(Number(/"requests":(\d+)/.exec(before)?.[1])).toBeGreaterThan(2);
    await owner(`${host.url}/_admin/logger`, { method: 'DELETE' });
    expect((await fetch(`${host.url}/producer/alone`)).status).toBe(201);
    const log = async () => (await owner(`${host.url}/_admin/producer/logs`)).text();
    await expect.poll(log).toMatch(/tail-lost.*did not reach logger/);
  });
});

describe('Workers AI', () => {
  const run = (model: string | undefined, inputs?: object, options?: object) =>
    fetch(`${host.url}/asker/`, jsonPost({ model, inputs, options }));
  beforeAll(() => deploy(owner, host.url, { slug: 'asker', code: ASKER, bindings: { ai: { AI: {} } } }));

  it('text, streams and embeddings, in its own shapes', async () => {
    const inputs = { messages: [{ role: 'user', content: 'Hi' }], max_tokens: 9 };
    expect(await (await run('@cf/meta/llama', inputs)).json()).toEqual({
      response: 'Hello.',
      usage: { total_tokens: 7 },
    });
    expect(asked.at(-1)).toEqual({
      path: '/v1/chat/completions',
      key: `Bearer ${KEY}`,
      body: { model: 'llama', ...inputs },
    });
    const stream = await run('@cf/meta/llama', { prompt: 'Hi', stream: true });
    expect(await stream.text()).toBe(
      'data: {"response":"Hel"}\n\ndata: {"response":"lo"}\n\ndata: {"response":"","usage":{"total_tokens":7}}\n\ndata: [DONE]\n\n',
    );
    expect(await (await run('@cf/baai/bge', { text: ['a', 'bcd'] })).json()).toEqual({
      shape: [2, 2],
      data: [
        [1, 0.5],
        [3, 0.5],
      ],
    });
    expect(JSON.stringify(await (await run(undefined)).json())).toMatch(/@cf\/meta\/llama/);
  });

  it('what this host does not have is refused by name', async () => {
    const said = async (...given: Parameters<typeof run>) => (await run(...given)).text();
    expect(await said('@cf/other', { prompt: 'a' })).toMatch(/No such model @cf\/other/);
    expect(await said('__proto__', { prompt: 'a' })).toMatch(/No such model/);
    expect(await said('@cf/meta/llama', { prompt: 'a', lora: 'x' })).toMatch(/does not take lora/);
    expect(await said('@cf/meta/llama', { prompt: 'a' }, { gateway: { id: 'g' } })).toMatch(/run\(\) and models\(\)/);
    expect(await said('@cf/meta/llama', { prompt: 'x'.repeat(1_100_000) })).toMatch(/larger than/);
  });

  it('a hostile server takes neither time nor memory without end, and learns nothing', async () => {
    const said = async (model: string, stream: boolean) => (await run(model, { prompt: 'a', stream })).text();
    expect(await said('endless', false)).toMatch(/too large/);
    expect(await said('endless', true)).toMatch(/not JSON|too large/);
    expect(await said('broken', false)).toMatch(/no JSON/);
    expect(await said('broken', true).catch(String)).toMatch(/lost|terminated|fetch failed/);
    expect(await said('angry', false)).toMatch(/answered 401/);
    expect(await said('elsewhere', false)).toMatch(/cannot be reached/);
    const both = [said('slow', false), said('slow', true)];
    await expect.poll(() => stuck).toBe(2);
    const more = Array.from({ length: 17 }, () => said('@cf/meta/llama', false));
    for (const one of await Promise.all(both)) expect(one).toMatch(/took too long/);
    await expect.poll(() => stuck).toBe(0);
    // They have waited for a place; only one of them found too many before it.
    const answers = (await Promise.all(more)).sort();
    expect(answers.filter((one) => /Hello/.test(one))).toHaveLength(16);
    expect(answers.filter((one) => /3040: Too many calls/.test(one))).toHaveLength(1);
    expect(await said('@cf/meta/llama', false)).toMatch(/Hello/);
    expect(host.output()).not.toContain(KEY);
  });
});

it('what this host does not have is refused by name in a deploy body', async () => {
  for (const key of ['email', 'browser', 'vectorize', 'images']) {
    const answer = await owner(
      `${host.url}/_admin/deploy`,
      jsonPost({ slug: 'more', code: ASKER, bindings: { [key]: { X: {} } } }),
    );
    expect(answer.status).toBe(400);
    expect(await answer.text()).toMatch(`/bindings/${key} is not on this host`);
  }
});

it('data points are in backups', async () => {
  const sql = 'SELECT count() AS n FROM visits';
  const before = Number((await rows(sql))[0]?.n);
  expect(before).toBeGreaterThan(0);
  const folder = mkdtempSync(path.join(tmpdir(), 'tp-points-'));
  try {
    const passphrase = path.join(folder, 'passphrase');
    writeFileSync(passphrase, 'a passphrase for a test\n', { mode: 0o600 });
    const command = async (data: string, ...args: string[]) => {
      const flags = ['--json', '--data', data, ...args, '--passphrase-file', passphrase];
      expect((await turnpike(flags, { cwd: folder })).stderr).toBe('');
    };
    await command(host.data, 'backup', path.join(folder, 'backups'));
    await command(path.join(folder, 'data'), 'restore', path.join(folder, 'backups'));
    const [file = ''] = globSync(path.join(folder, 'data/tenants/*/analytics/db.sqlite'));
    expect(new DatabaseSync(file).prepare(sql).get()).toEqual({ n: before });
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
});

it('data points survive kill -9 of the host a second after they were recorded, and a restart without models refuses AI', async () => {
  const from = Number((await rows("SELECT count() AS n FROM visits WHERE blob1 = '/kept'"))[0]?.n);
  expect(from).toBe(0);
  await call('recorder/kept?n=40');
  await delay(1_000);
  await host.kill();
  host = await host.restart({ flags: { 'ai-url': '', 'ai-models': '{}' } });
  owner = mppFetch(host.network, 0);
  expect(await rows("SELECT count() AS n FROM visits WHERE blob1 = '/kept'")).toEqual([{ n: 40 }]);
  const refused = await owner(
    `${host.url}/_admin/deploy`,
    jsonPost({ slug: 'late', code: ASKER, bindings: { ai: { AI: {} } } }),
  );
  expect(refused.status).toBe(400);
  expect(await refused.text()).toMatch(/its operator has named no server/);
});
