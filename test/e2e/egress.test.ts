/** The egress process with a real workerd before it: what a handler can reach, and what it is told when it cannot. */
import { execFileSync, fork } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { createServer, type Server } from 'node:http';
import { createServer as createTlsServer } from 'node:https';
import { type AddressInfo, createServer as createTcpServer, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { WebSocketServer } from 'ws';
import { Channel } from '../../host/shared/channel.ts';
import type { EgressMethods, EgressNotice } from '../../host/shared/contracts.ts';
import { type BareWorkerd, startWorkerd } from './support/bare-workerd.ts';
import { type DnsServer, startDns } from './support/dns-server.ts';

const HANDLER = `
import { connect } from 'cloudflare:sockets';
async function go({ url, init, times, tcp, send, ws, cancel, stream, upload }) {
  if (upload) {
    const body = () => new Response('x'.repeat(upload)).body;
    const answers = [];
    for (let i = 0; i < times; i++) {
      const answer = await fetch(url, { method: 'POST', body: body() });
      answers.push(answer.status + ' ' + await answer.text());
    }
    return { text: [...new Set(answers)].join() };
  }
  if (tcp) {
    const socket = connect(tcp);
    const writer = socket.writable.getWriter();
    await writer.write(new TextEncoder().encode(send));
    const { value } = await socket.readable.getReader().read();
    await socket.close();
    return { text: new TextDecoder().decode(value) };
  }
  if (ws) {
    const { status, webSocket } = await fetch(ws, { headers: { upgrade: 'websocket' } });
    if (!webSocket) return { status };
    webSocket.accept();
    const message = new Promise((resolve) => webSocket.addEventListener('message', ({ data }) => resolve(data)));
    webSocket.send(send);
    const text = await message;
    webSocket.close(1000, 'done');
    return { status, text };
  }
  if (times) {
    const all = await Promise.all(Array.from({ length: times }, () => fetch(url).then(async (r) => { await r.text(); return r.status; })));
    return { statuses: all };
  }
  const answer = await fetch(url, { redirect: 'manual', ...init });
  if (cancel) { const reader = answer.body.getReader(); const { value } = await reader.read(); await reader.cancel(); return { first: value.length }; }
  return { status: answer.status, headers: [...answer.headers], text: await answer.text() };
}
export default {
  async fetch(request) {
    try { return Response.json(await go(await request.json())); }
    catch (error) { return Response.json({ error: String(error) }); }
  },
};`;

interface Answer {
  status?: number;
  statuses?: number[];
  headers?: [string, string][];
  text?: string;
  error?: string;
  first?: number;
}

let folder: string;
let child: ReturnType<typeof fork>;
let egress: Channel<EgressMethods>;
let workerd: BareWorkerd;
let dns: DnsServer;
let inside: Server;
let edge: Server;
let tls: Server;
let tcp: ReturnType<typeof createTcpServer>;
let sockets: WebSocketServer;
let notices: EgressNotice[] = [];
let insideHits = 0;
let slowClosed = 0;
/** Requests of `/hold` that are held, and how many were held at once at most. */
const held: (() => void)[] = [];
let mostHeld = 0;

const limits = { inFlight: 4, bytesPerHour: 50_000_000, timeoutMs: 10_000 };
const tenant = 't00000000000000000001';
const port = (server: { address(): unknown }) => (server.address() as AddressInfo).port;
const listen = async (server: Server | ReturnType<typeof createTcpServer>) => {
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
};

async function ask(what: object): Promise<Answer> {
  const { text } = await workerd.fetch('/', { method: 'POST', body: JSON.stringify(what) });
  return JSON.parse(text);
}

const allowed = () => [
  `127.0.0.1:${port(inside)}`,
  `localhost:${port(tls)}`,
  `127.0.0.1:${port(tcp)}`,
  `127.0.0.1:${port(sockets)}`,
  `unix:${join(folder, 'engine.sock')}`,
];
const open = (more: Partial<typeof limits> = {}, allow = allowed()) =>
  egress.call('open', {
    tenant,
    slug: 'hello',
    socket: join(folder, 'egress.sock'),
    allow,
    limits: { ...limits, ...more },
  });

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'tp-egress-'));
  execFileSync(
    'openssl',
    [
      'req',
      '-x509',
      '-newkey',
      'ec',
      '-pkeyopt',
      'ec_paramgen_curve:prime256v1',
      '-nodes',
      '-days',
      '2',
      '-subj',
      '/CN=localhost',
      '-addext',
      'subjectAltName=DNS:localhost',
      '-keyout',
      join(folder, 'key.pem'),
      '-out',
      join(folder, 'cert.pem'),
    ],
    { stdio: 'ignore' },
  );
  const cert = await readFile(join(folder, 'cert.pem'), 'utf8');
  inside = createServer((request, reply) => {
    insideHits++;
    if (request.url === '/redirect') return reply.writeHead(302, { location: 'http://169.254.169.254/latest/' }).end();
    if (request.url === '/flood-head') {
      return reply.writeHead(200, { 'x-big': Array.from({ length: 30 }, () => 'x'.repeat(8_000)) }).end();
    }
    if (request.url === '/endless') {
      reply.once('close', () => slowClosed++);
      const chunk = Buffer.alloc(65_536);
      const more = () => {
        while (!reply.destroyed && reply.write(chunk));
      };
      reply.on('drain', more);
      return more();
    }
    if (request.url === '/early') return reply.writeHead(413).end('too much');
    if (request.url === '/never') return undefined;
    if (request.url === '/hold') {
      held.push(() => reply.end('held'));
      mostHeld = Math.max(mostHeld, held.length);
      return undefined;
    }
    const chunks: Buffer[] = [];
    request.on('data', (chunk) => chunks.push(chunk));
    request.on('end', () => {
      reply.setHeader('set-cookie', ['a=1', 'b=2']);
      reply.setHeader('proxy-status', [
        'turnpike; error=destination_ip_prohibited',
        'cdn.example; received-status=200',
      ]);
      reply.end(
        JSON.stringify({
          method: request.method,
          url: request.url,
          headers: request.headers,
          body: Buffer.concat(chunks).toString(),
        }),
      );
    });
    return undefined;
  });
  edge = createServer((request, reply) =>
    reply.end(`edge ${request.headers.host} ${request.url} ${request.headers['x-forwarded-proto'] ?? 'http'}`),
  );
  tls = createTlsServer({ key: await readFile(join(folder, 'key.pem')), cert }, (request, reply) =>
    reply.end(`tls ${request.url}`),
  );
  tcp = createTcpServer({ allowHalfOpen: true }, (socket: Socket) => socket.on('error', () => {}).pipe(socket));
  for (const server of [inside, edge, tls, tcp]) await listen(server);
  sockets = new WebSocketServer({ port: 0, host: '127.0.0.1' });
  sockets.on('connection', (socket) => socket.on('message', (data) => socket.send(`echo ${data}`)));
  const engine = createServer((request, reply) => reply.end(`engine ${request.headers.host}`)).listen(
    join(folder, 'engine.sock'),
  );
  await once(engine, 'listening');
  engine.unref();
  dns = await startDns((name, type) => {
    if (name === 'private.test') return type === 'A' ? ['10.1.2.3'] : [];
    if (name === 'mixed.test') return type === 'A' ? ['93.184.216.34', '127.0.0.1'] : [];
    if (name === 'v6.test') return type === 'AAAA' ? ['0064ff9b0000000000000000a9fea9fe'] : [];
    if (name === 'mapped.test') return type === 'AAAA' ? ['00000000000000000000ffff7f000001'] : [];
    if (name === 'rebind.test')
      return type === 'A'
        ? [dns.asked.filter((a) => a === 'A rebind.test').length > 1 ? '127.0.0.1' : '192.0.2.1']
        : [];
    if (name === 'itself.test') return ['CNAME itself.test'];
    if (name === 'ring-a.test') return ['CNAME ring-b.test'];
    if (name === 'ring-b.test') return ['CNAME ring-a.test'];
    return [];
  });
  child = fork(new URL('../../host/egress/main.ts', import.meta.url), { serialization: 'advanced' });
  egress = new Channel<EgressMethods>(child, {
    notices: (list: EgressNotice[]) => {
      notices.push(...list);
    },
  });
  await egress.call('init', {
    ownHosts: [`host.test:${port(edge)}`],
    baseDomain: 'tenants.test',
    edgeAddress: { host: '127.0.0.1', port: port(edge) },
    connectPorts: undefined,
    dnsServers: [dns.address],
    extraAuthority: cert,
    clockOffsetMs: 0,
  });
  await open();
  workerd = await startWorkerd(
    folder,
    HANDLER,
    `(name = "egress", external = (address = "unix:${join(folder, 'egress.sock')}", http = (style = proxy)))`,
    'globalOutbound = "egress"',
  );
});

afterAll(async () => {
  await workerd?.stop();
  const gone = once(child, 'exit');
  child.disconnect();
  await gone;
  dns.stop();
  sockets.close();
  for (const server of [inside, edge, tls]) {
    server.closeAllConnections();
    server.close();
  }
  tcp.close();
  await rm(folder, { recursive: true });
});

beforeEach(() => {
  notices = [];
});

afterEach(async () => {
  await expect
    .poll(async () => (await egress.call('counters', { tenant })).inFlight, {
      message: 'a slot leaked',
    })
    .toBe(0);
});

describe('what passes', () => {
  test('a request with all it carries, and its answer with all its headers', async () => {
    const answer = await ask({
      url: `http://127.0.0.1:${port(inside)}/a%20b?c=d`,
      init: {
        method: 'PUT',
        body: 'hällo',
        headers: { 'x-own': 'kept', 'x-payer': 'forged', 'x-turnpike-context': 'forged' },
      },
    });
    const seen = JSON.parse(answer.text ?? '');
    expect(seen).toMatchObject({ method: 'PUT', url: '/a%20b?c=d', body: 'hällo' });
    expect(seen.headers).toMatchObject({ host: `127.0.0.1:${port(inside)}`, 'x-own': 'kept' });
    expect(Object.keys(seen.headers)).not.toEqual(expect.arrayContaining(['x-payer']));
    expect(JSON.stringify(seen)).not.toContain('forged');
    expect(answer.headers?.filter(([name]) => name === 'set-cookie')).toEqual([
      ['set-cookie', 'a=1'],
      ['set-cookie', 'b=2'],
    ]);
    // Only the way out itself speaks in its own name.
    expect(answer.headers?.filter(([name]) => name === 'proxy-status')).toEqual([
      ['proxy-status', 'cdn.example; received-status=200'],
    ]);
  });

  test.each(['GET', 'HEAD', 'POST', 'PUT', 'DELETE', 'PATCH', 'OPTIONS'])('%s without a body', async (method) => {
    const answer = await ask({ url: `http://127.0.0.1:${port(inside)}/`, init: { method } });
    expect(answer.status).toBe(200);
    if (method !== 'HEAD') expect(JSON.parse(answer.text ?? '')).toMatchObject({ method, body: '' });
  });

  test('https, with TLS spoken by the egress and the certificate checked', async () => {
    expect(await ask({ url: `https://localhost:${port(tls)}/x` })).toMatchObject({ status: 200, text: 'tls /x' });
  });

  test('own names lead to the edge, https too', async () => {
    const at = port(edge);
    expect((await ask({ url: `http://host.test:${at}/other/x` })).text).toBe(`edge host.test:${at} /other/x http`);
    expect((await ask({ url: `http://other.tenants.test:${at}/` })).text).toBe(`edge other.tenants.test:${at} / http`);
    expect((await ask({ url: 'https://other.tenants.test/' })).text).toBe('edge other.tenants.test / https');
  });

  test('a unix socket that the operator opened', async () => {
    expect((await ask({ url: 'http://engine.internal/' })).text).toBe('engine engine.internal');
  });

  test('connect() carries bytes both ways', async () => {
    expect(await ask({ tcp: `127.0.0.1:${port(tcp)}`, send: 'ping' })).toEqual({ text: 'ping' });
  });

  test('an outbound WebSocket', async () => {
    expect(await ask({ ws: `http://127.0.0.1:${port(sockets)}/`, send: 'hi' })).toEqual({
      status: 101,
      text: 'echo hi',
    });
    expect(await ask({ ws: `http://127.0.0.1:${port(inside)}/`, send: 'hi' })).toEqual({ status: 200 });
  });

  test('an answer is streamed, and dropping it closes the connection behind', async () => {
    const before = slowClosed;
    expect((await ask({ url: `http://127.0.0.1:${port(inside)}/endless`, cancel: true })).first).toBeGreaterThan(0);
    await expect.poll(() => slowClosed).toBe(before + 1);
  });
});

describe('what is refused, and says so', () => {
  test.each([
    'http://127.0.0.1/',
    'http://2130706433/',
    'http://0x7f000001/',
    'http://0177.1/',
    'http://127.1/',
    'http://0/',
    'http://[::1]/',
    'http://[::]/',
    'http://[::ffff:127.0.0.1]/',
    'http://[::ffff:a9fe:a9fe]/',
    'http://[::127.0.0.1]/',
    'http://[64:ff9b::a9fe:a9fe]/',
    'http://[64:ff9b:1::7f00:1]/',
    'http://[2002:7f00:1::]/',
    'http://[fe80::1]/',
    'http://[fd00:ec2::254]/',
    'http://169.254.169.254/latest/meta-data/',
    'http://100.100.100.200/',
    'http://168.63.129.16/',
    'http://10.0.0.1/',
    'http://192.168.1.1/',
    'http://172.16.0.1/',
    'http://100.64.0.1/',
    'http://224.0.0.1/',
    'http://255.255.255.255/',
    'http://localhost/',
    'http://localhost./',
    'http://x.localhost/',
    'https://127.0.0.1/',
    'http://①②⑦.⓪.⓪.①/',
    'http://private.test/',
    'http://mixed.test/',
    'http://v6.test/',
    'http://mapped.test/',
    'http://other.internal/',
    'http://127.0.0.1:25/',
  ])('fetch %s', async (url) => {
    const answer = await ask({ url });
    const problem = JSON.parse(answer.text ?? '{}');
    if (url.includes('.internal')) expect(problem).toMatchObject({ status: 502, code: 'egress_failed' });
    else expect(problem).toMatchObject({ status: 403, code: 'egress_refused' });
    expect(answer.status).toBe(problem.status);
    // So that a handler can tell it from the destination's own refusal.
    const [, status] = answer.headers?.find(([name]) => name === 'proxy-status') ?? [];
    expect(status).toMatch(/^turnpike; error=destination_(ip_prohibited|unavailable)$/);
  });

  test('the same port that is open to one name stays closed under another', async () => {
    const before = insideHits;
    for (const host of ['localhost', '[::ffff:127.0.0.1]', '0.0.0.0', '127.0.0.2']) {
      expect((await ask({ url: `http://${host}:${port(inside)}/` })).status).toBe(403);
    }
    expect(insideHits).toBe(before);
  });

  test('a redirect into the private network', async () => {
    const answer = await ask({ url: `http://127.0.0.1:${port(inside)}/redirect`, init: { redirect: 'follow' } });
    expect(JSON.parse(answer.text ?? '')).toMatchObject({ code: 'egress_refused', target: '169.254.169.254:80' });
  });

  test('a name is resolved once, and that answer is judged', async () => {
    expect((await ask({ url: 'http://rebind.test/' })).status).toBe(403);
    expect(dns.asked.filter((asked) => asked === 'A rebind.test')).toHaveLength(1);
  });

  test.each(['itself.test', 'ring-a.test'])('%s is an alias of itself in the end', async (name) => {
    const from = dns.asked.length;
    const answer = await ask({ url: `http://${name}/` });
    expect(JSON.parse(answer.text ?? '')).toMatchObject({ code: 'egress_failed', target: `${name}:80` });
    expect(dns.asked.slice(from).filter((asked) => asked.endsWith(name)).length).toBeLessThanOrEqual(4);
  });

  test.each(['127.0.0.1:22', '[::1]:22', '169.254.169.254:80', 'private.test:5432', 'smtp.example.test:25'])(
    'connect %s',
    async (address) => {
      expect((await ask({ tcp: address, send: 'x' })).error).toMatch(
        /cannot connect|proxy request failed|disconnected/i,
      );
      await expect.poll(() => notices.map(({ target }) => target)).toContain(address);
    },
  );

  test('the owner hears of it once a second, counted', async () => {
    for (let index = 0; index < 5; index++) await ask({ url: 'http://10.9.8.7/' });
    await expect
      .poll(() => notices.filter(({ target }) => target === '10.9.8.7:80').reduce((sum, { count }) => sum + count, 0))
      .toBe(5);
    expect(notices[0]).toMatchObject({ tenant, slug: 'hello', code: 'egress_refused' });
    expect(notices[0]?.detail).toContain('private');
  });
});

describe('what fails, and says why', () => {
  test('a closed port, an unknown name, TLS with a wrong name, too much head', async () => {
    await open({}, [...allowed(), '127.0.0.1:1', `127.0.0.1:${port(tls)}`]);
    const detail = async (url: string) => {
      const answer = await ask({ url });
      expect(answer.status).toBe(502);
      return JSON.parse(answer.text ?? '').detail;
    };
    expect(await detail('http://127.0.0.1:1/')).toContain('the connection was refused');
    expect(await detail('http://nowhere.test/')).toContain('No address was found for nowhere.test');
    expect(await detail(`https://127.0.0.1:${port(tls)}/`)).toContain('ERR_TLS_CERT_ALTNAME_INVALID');
    expect(await detail(`http://127.0.0.1:${port(inside)}/flood-head`)).toContain(
      'headers of its answer are too large',
    );
    await open();
  });

  test('an answer that does not come in time', async () => {
    await open({ timeoutMs: 300 });
    const answer = await ask({ url: `http://127.0.0.1:${port(inside)}/never` });
    await open();
    expect(JSON.parse(answer.text ?? '')).toMatchObject({ status: 504, code: 'egress_timeout' });
  });
});

describe('what is limited', () => {
  test('more requests than slots wait, and all are served', async () => {
    const all = ask({ url: `http://127.0.0.1:${port(inside)}/hold`, times: 10 });
    let released = 0;
    while (released < 10) {
      await expect.poll(() => held.length).toBeGreaterThan(0);
      held.shift()?.();
      released++;
    }
    expect((await all).statuses).toEqual(Array(10).fill(200));
    expect(mostHeld).toBeLessThanOrEqual(limits.inFlight);
    await expect.poll(async () => (await egress.call('counters', { tenant })).inFlight).toBe(0);
  });

  test("the hour's bytes: an endless answer is cut, the next request is told, others go on after a raise", async () => {
    const { bytesIn, bytesOut } = await egress.call('counters', { tenant });
    await open({ bytesPerHour: bytesIn + bytesOut + 1_000_000 });
    const cut = await ask({ url: `http://127.0.0.1:${port(inside)}/endless` });
    expect(cut.error).toBeDefined();
    const next = await ask({ url: `http://127.0.0.1:${port(inside)}/` });
    expect(JSON.parse(next.text ?? '')).toMatchObject({ status: 429, code: 'egress_limit' });
    await open();
    expect((await ask({ url: `http://127.0.0.1:${port(inside)}/` })).status).toBe(200);
  });

  test('counters and metrics add up', async () => {
    const counters = await egress.call('counters', { tenant });
    expect(counters.requests).toBeGreaterThan(50);
    expect(counters.refused).toBeGreaterThan(30);
    expect(counters.bytesIn).toBeGreaterThan(1_000_000);
    const metrics = JSON.stringify(await egress.call('metrics', undefined));
    expect(metrics).toContain('turnpike_egress_requests_total');
    expect(metrics).not.toContain('hello');
  });
});

test('after close nothing listens, and open serves again', async () => {
  await egress.call('close', { tenant });
  expect((await ask({ url: `http://127.0.0.1:${port(inside)}/` })).error).toBeDefined();
  await open();
  expect((await ask({ url: `http://127.0.0.1:${port(inside)}/` })).status).toBe(200);
});

// at the end, because it uses up the bytes of more than an hour of the others
test('an answer that comes before the upload is in arrives whole', async () => {
  await open({ bytesPerHour: 5_000_000_000 });
  for (const size of [70_000, 300_000, 3_000_000]) {
    const answer = await ask({ url: `http://127.0.0.1:${port(inside)}/early`, upload: size, times: 40 });
    expect(answer).toEqual({ text: '413 too much' });
  }
});
