/** Tenants that attack through the network, and callers that attack tenants: real runtime, edge and egress. */
import { once } from 'node:events';
import { createServer, type Server } from 'node:http';
import net from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { RuntimeRig } from './runtime-rig.ts';
import { until } from './support/until.ts';

let rig: RuntimeRig;
let victim: Server;
let port: number;
let reached: string[] = [];

beforeAll(async () => {
  victim = createServer((request, response) => {
    reached.push(`${request.method} ${request.url}`);
    response.end('internal');
  });
  victim.on('connection', () => reached.push('connection'));
  victim.listen(0, '127.0.0.1');
  await once(victim, 'listening');
  port = (victim.address() as net.AddressInfo).port;
  rig = await RuntimeRig.start({ runtime: { requestIdleMs: 5_000, maxBodyBytes: 5_000_000, cpuStallMs: 2_000 } });
  await rig.deploy(
    'attacker',
    `import { connect } from 'cloudflare:sockets';
export default {
  async fetch(request) {
    const { urls = [], sockets = [] } = await request.json();
    const results = {};
    for (const url of urls) {
      try {
        const response = await fetch(url, { signal: AbortSignal.timeout(4000) });
        results[url] = response.status + ' ' + (await response.text()).slice(0, 60);
      } catch (error) {
        results[url] = 'error ' + error.message;
      }
    }
    for (const address of sockets) {
      try {
        const socket = connect(address);
        const writer = socket.writable.getWriter();
        await writer.write(new TextEncoder().encode('GET /by-socket HTTP/1.0\\r\\n\\r\\n'));
        const { value } = await socket.readable.getReader().read();
        results[address] = 'got ' + (value ? new TextDecoder().decode(value).slice(0, 60) : 'nothing');
      } catch (error) {
        results[address] = 'error ' + error.message;
      }
    }
    return Response.json(results);
  },
};`,
  );
});
afterAll(async () => {
  await rig?.stop();
  victim?.closeAllConnections();
  victim?.close();
});

async function attack(body: { urls?: string[]; sockets?: string[] }): Promise<Record<string, string>> {
  reached = [];
  const response = await rig.fetch('attacker', '/', { method: 'POST', body: JSON.stringify(body) });
  return (await response.json()) as Record<string, string>;
}

describe('server-side request forgery', () => {
  it('reaches no loopback server, however it is spelled', async () => {
    const hosts = [
      '127.0.0.1',
      '127.1',
      '2130706433',
      '0x7f000001',
      '0177.0.0.1',
      '127.0.0.1.',
      '127.255.255.254',
      '0.0.0.0',
      '0',
      '[::1]',
      '[::]',
      '[0:0:0:0:0:0:0:1]',
      '[::ffff:127.0.0.1]',
      '[::ffff:7f00:1]',
      '[::127.0.0.1]',
      '[64:ff9b::7f00:1]',
      '[2002:7f00:1::]',
      '①②⑦.0.0.1',
      'localhost.localdomain',
    ];
    const results = await attack({ urls: hosts.map((host) => `http://${host}:${port}/secret`) });
    expect(reached).toEqual([]);
    expect(Object.keys(results).length).toBeGreaterThan(15);
    for (const [url, result] of Object.entries(results)) expect(result, url).not.toContain('internal');
  });

  it('reaches no private range and no metadata service', async () => {
    const hosts = [
      '10.0.0.1',
      '172.16.0.1',
      '192.168.0.1',
      '169.254.169.254',
      '[fd00:ec2::254]',
      '[fe80::1]',
      '100.64.0.1',
      '198.18.0.1',
      '192.0.2.1',
      '224.0.0.1',
      '255.255.255.255',
      '[fc00::1]',
      '[ff02::1]',
      '[64:ff9b::a00:1]',
      '[2002:a00:1::]',
      'metadata.google.internal',
    ];
    const results = await attack({ urls: hosts.map((host) => `http://${host}/latest/meta-data/`) });
    for (const [url, result] of Object.entries(results)) expect(result, url).toMatch(/^(error|403|4\d\d|502|5\d\d)/);
    await rig.logged('attacker', /refused|not public|private/i);
  });

  it('is not led there by a redirect of another tenant', async () => {
    await rig.deploy(
      'redirector',
      `export default { fetch: () => Response.redirect('http://127.0.0.1:${port}/by-redirect', 302) }`,
    );
    const results = await attack({
      urls: [`http://127.0.0.1:${rig.port}/redirector/`, 'http://redirector.localhost/'],
    });
    expect(reached).toEqual([]);
    expect(JSON.stringify(results)).not.toContain('internal');
  });

  it('opens no socket to the host either, nor to mail servers', async () => {
    const results = await attack({
      sockets: [`127.0.0.1:${port}`, `localhost:${port}`, `[::1]:${port}`, '169.254.169.254:80', '1.1.1.1:25'],
    });
    expect(reached).toEqual([]);
    for (const [address, result] of Object.entries(results)) expect(result, address).toMatch(/^error|got nothing/);
  });

  it('does not reach sockets of the host by name', async () => {
    const results = await attack({
      urls: [
        'http://kv/',
        'http://system/ping',
        'http://unix/run/services/kv.sock',
        'http://egress.sock/',
        'file:///etc/passwd',
        'unix:/run/services/egress.sock',
      ],
    });
    for (const [url, result] of Object.entries(results)) expect(result, url).not.toMatch(/pong|root:|internal/);
  });
});

describe('floods', () => {
  it('holds thousands of fetches to a bounded number', async () => {
    await rig.deploy(
      'sink',
      `export default { async fetch() { await scheduler.wait(50); return new Response('ok'); } }`,
    );
    await rig.deploy(
      'flooder',
      `export default { async fetch(request) {
        if (new URL(request.url).pathname === '/fine') return new Response('fine');
        const results = await Promise.allSettled(Array.from({ length: 2000 }, () => fetch('http://127.0.0.1:${rig.port}/sink/').then((r) => r.text())));
        return Response.json({ ok: results.filter((r) => r.value === 'ok').length, rest: results.filter((r) => r.value !== 'ok').length });
      } }`,
    );
    const response = await rig.fetch('flooder');
    expect([200, 500, 503, 504]).toContain(response.status);
    expect(await rig.text('flooder', '/fine')).toBe('fine');
    expect(await rig.text('sink')).toBe('ok');
  });

  it('ends tenants that call each other for ever', async () => {
    for (const [slug, other] of [
      ['ping', 'pong'],
      ['pong', 'ping'],
    ] as const) {
      await rig.deploy(
        slug,
        `export default { async fetch(request) {
          if (new URL(request.url).pathname === '/fine') return new Response('fine');
          return fetch('http://127.0.0.1:${rig.port}/${other}/');
        } }`,
      );
    }
    const response = await rig.fetch('ping', '/', { signal: AbortSignal.timeout(60_000) });
    expect(response.status).toBeGreaterThanOrEqual(400);
    await response.text();
    expect(await rig.text('ping', '/fine')).toBe('fine');
    expect(await rig.text('pong', '/fine')).toBe('fine');
  });

  it('survives a thousand web sockets from outside', async () => {
    await rig.deploy(
      'sockets',
      `export default { fetch(request) {
        if (request.headers.get('upgrade') !== 'websocket') return new Response('fine');
        const [client, server] = Object.values(new WebSocketPair());
        server.accept();
        server.addEventListener('message', (event) => server.send(event.data));
        return new Response(null, { status: 101, webSocket: client });
      } }`,
    );
    await rig.text('sockets');
    const sockets = await Promise.all(Array.from({ length: 1_000 }, () => upgrade(rig.port, '/sockets/')));
    expect(sockets.filter(({ status }) => status === 101).length).toBeGreaterThan(500);
    expect(await rig.text('sockets')).toBe('fine');
    for (const { socket } of sockets) socket.destroy();
  });
});

describe('hostile callers', () => {
  it('thousands who wait at once are refused before they use up the handler', async () => {
    await rig.deploy(
      'waiting',
      `let answered = 0;
      export default { async fetch(request) {
        if (new URL(request.url).pathname === '/count') return new Response(String(answered));
        answered += 1;
        return new Response(new ReadableStream({ start(controller) { controller.enqueue(new Uint8Array(1)); } }));
      } }`,
    );
    await rig.text('waiting', '/count');
    const statuses: string[] = [];
    // From several addresses: the host closes connections beyond the limit of one address without an answer.
    const sockets = Array.from({ length: 4_800 }, (_, at) => {
      const localAddress = `127.0.1.${1 + (at % 12)}`;
      const socket = net.connect({ port: rig.port, host: '127.0.0.1', localAddress });
      socket.on('error', () => undefined);
      socket.once('data', (data) => statuses.push(data.toString('latin1').slice(9, 12)));
      socket.write('GET /waiting/ HTTP/1.1\r\nhost: x\r\n\r\n');
      return socket;
    });
    await until(() => statuses.length === sockets.length);
    // 504: a machine that is busy takes longer than `requestIdleMs` for the last of them.
    expect(['200', '503', '504']).toEqual(expect.arrayContaining([...new Set(statuses)]));
    const many = (status: string) => statuses.filter((one) => one === status).length;
    expect(many('503')).toBeGreaterThan(0);
    for (const socket of sockets) socket.destroy();
    const count = await until(async () => Number(await rig.text('waiting', '/count')));
    // It is still the same handler that answers. How many it answers in time is the machine's to say.
    expect(count).toBeGreaterThanOrEqual(many('200'));
    expect(count).toBeLessThanOrEqual(many('200') + many('504'));
    expect(many('200')).toBeGreaterThan(0);
  });

  it('a reader that does not read does not fill the memory of the edge or the tenant', async () => {
    await rig.deploy(
      'firehose',
      `export default { fetch(request) {
        if (new URL(request.url).pathname === '/fine') return new Response('fine');
        return new Response(new ReadableStream({ pull(c) { c.enqueue(new Uint8Array(65536).fill(1)); } }));
      } }`,
    );
    const readers = await Promise.all(
      Array.from({ length: 30 }, async () => {
        const socket = net.connect(rig.port, '127.0.0.1');
        await once(socket, 'connect');
        socket.pause();
        socket.write('GET /firehose/ HTTP/1.1\r\nhost: x\r\n\r\n');
        return socket;
      }),
    );
    await delay(1_500);
    const { memoryBytes = 0 } = rig.runtime.status('firehose');
    expect(memoryBytes).toBeLessThan(150_000_000);
    expect(await rig.text('firehose', '/fine')).toBe('fine');
    for (const reader of readers) reader.destroy();
  });

  it('a body that trickles in does not hold up others', async () => {
    await rig.deploy(
      'reader',
      `export default { async fetch(request) { return new Response(String((await request.text()).length)); } }`,
    );
    const slow = Array.from({ length: 50 }, () => {
      const socket = net.connect(rig.port, '127.0.0.1');
      socket.on('error', () => undefined);
      socket.write('POST /reader/ HTTP/1.1\r\nhost: x\r\ncontent-length: 1000000\r\n\r\nx');
      return socket;
    });
    expect(await rig.text('reader', '/', { method: 'POST', body: 'hello' })).toBe('5');
    for (const socket of slow) socket.destroy();
  });

  it('a body over the limit is refused', async () => {
    const response = await rig
      .fetch('reader', '/', { method: 'POST', body: 'x'.repeat(5_000_001) })
      .catch(() => undefined);
    expect(response?.status ?? 413).toBe(413);
    expect(await rig.text('reader', '/', { method: 'POST', body: 'x' })).toBe('1');
  });

  it('a bomb of compressed bytes stays compressed on its way', async () => {
    await rig.deploy(
      'bomb',
      `export default { async fetch() {
        const zip = new CompressionStream('gzip'); const writer = zip.writable.getWriter();
        (async () => { const zeros = new Uint8Array(1e6); for (let i = 0; i < 300; i++) await writer.write(zeros); await writer.close(); })();
        return new Response(zip.readable, { headers: { 'content-encoding': 'gzip' }, encodeBody: 'manual' });
      } }`,
    );
    await rig.deploy(
      'opener',
      `export default { async fetch(request) {
        if (new URL(request.url).pathname === '/fine') return new Response('fine');
        const bytes = await (await fetch('http://127.0.0.1:${rig.port}/bomb/')).arrayBuffer();
        return new Response(String(bytes.byteLength));
      } }`,
    );
    const response = await rig.fetch('opener');
    const text = await response.text();
    expect([200, 500, 502, 503, 504], text.slice(0, 200)).toContain(response.status);
    await until(async () => (await rig.text('opener', '/fine')) === 'fine');
  });
});

function upgrade(toPort: number, path: string): Promise<{ status: number; socket: net.Socket }> {
  return new Promise((resolve) => {
    const socket = net.connect(toPort, '127.0.0.1');
    const done = (status: number) => resolve({ status, socket });
    socket.on('error', () => done(0));
    socket.setTimeout(20_000, () => done(0));
    socket.once('data', (data) => done(Number(data.toString('latin1').split(' ')[1])));
    socket.write(
      `GET ${path} HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n`,
    );
  });
}
