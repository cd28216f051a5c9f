/** HTTPS on the edge: certificates by name, HTTP/2 and HTTP/1.1, sessions, redirects, proxies in front, challenges. */
import { execFileSync, spawn } from 'node:child_process';
import { mkdir, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { type ClientHttp2Session, connect as connectHttp2, constants } from 'node:http2';
import { request as httpsRequest } from 'node:https';
import { type AddressInfo, connect as connectTcp } from 'node:net';
import { join } from 'node:path';
import type { Readable } from 'node:stream';
import { text } from 'node:stream/consumers';
import { type ConnectionOptions, connect as connectTls, type TLSSocket } from 'node:tls';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import WebSocket, { type ClientOptions } from 'ws';
import { type Harness, listening, route, startHarness, startWorkerd, type Workerd } from './edge/harness.ts';
import { until } from './support/until.ts';

const MODULE = `export default {
  async fetch(request) {
    const url = new URL(request.url);
    if (request.headers.get('upgrade') === 'websocket') {
      const [client, server] = Object.values(new WebSocketPair());
      server.accept();
      server.addEventListener('message', ({ data }) => server.send(data));
      return new Response(null, { status: 101, webSocket: client });
    }
    if (url.pathname === '/big') return new Response(new Uint8Array(5_000_000));
    if (url.pathname === '/forever') return new Response(new ReadableStream({ pull(c) { c.enqueue(new Uint8Array(65536)) } }));
    if (url.pathname === '/small') return new Response(new ReadableStream({ pull(c) { c.enqueue(new Uint8Array(500)) } }));
    if (url.pathname === '/count') {
      let bytes = 0;
      for await (const chunk of request.body ?? []) bytes += chunk.length;
      return Response.json({ bytes });
    }
    return Response.json({ url: request.url, method: request.method, cf: request.cf,
      headers: Object.fromEntries(request.headers), body: await request.text() },
      { headers: [['set-cookie', 'a=1'], ['set-cookie', 'b=2']] });
  },
};`;

let harness: Harness;
let workerd: Workerd;
let port: number;
let certificates: string;

/** A self-signed certificate for names, with its key. */
function makeCertificate(...names: string[]): { cert: string; key: string } {
  const pem = execFileSync(
    'openssl',
    [
      'req',
      '-x509',
      '-newkey',
      'ec',
      '-pkeyopt',
      'ec_paramgen_curve:P-256',
      '-nodes',
      '-days',
      '2',
      '-subj',
      `/CN=${names[0]}`,
      '-addext',
      `subjectAltName=${names.map((name) => `DNS:${name}`).join(',')}`,
      '-keyout',
      '-',
      '-out',
      '-',
    ],
    { stdio: ['ignore', 'pipe', 'ignore'] },
  ).toString();
  const at = pem.indexOf('-----BEGIN CERTIFICATE');
  return { key: pem.slice(0, at), cert: pem.slice(at) };
}

async function addToFolder(name: string, ...names: string[]): Promise<string> {
  const { cert, key } = makeCertificate(...names);
  await writeFile(join(certificates, 'new'), key + cert);
  await rename(join(certificates, 'new'), join(certificates, `${name}.pem`));
  return cert;
}

/** What openssl makes of the certificate that callers without a server name are shown. */
async function unnamed(...command: string[]): Promise<string> {
  const client = spawn('openssl', ['s_client', '-connect', `127.0.0.1:${port}`, '-noservername'], {
    stdio: ['ignore', 'pipe', 'ignore'],
  });
  const reader = spawn('openssl', command, { stdio: [client.stdout, 'pipe', 'ignore'] });
  return await text(reader.stdout as Readable);
}

async function replaceOwn({ cert, key }: { cert: string; key: string }): Promise<void> {
  await writeFile(join(certificates, '..', 'own.key'), key);
  await writeFile(join(certificates, '..', 'own.crt'), cert);
}

beforeAll(async () => {
  const files = join('/tmp', `edge-tls-${process.pid}`);
  certificates = join(files, 'certificates');
  await mkdir(certificates, { recursive: true });
  const own = makeCertificate('api.test', '*.apps.test');
  await writeFile(join(files, 'own.crt'), own.cert);
  await writeFile(join(files, 'own.key'), own.key);
  await addToFolder('shop.test', 'shop.test');
  harness = await startHarness({
    publicUrl: 'https://api.test',
    baseDomain: 'apps.test',
    trustedProxies: ['127.0.0.2/32'],
    stallMs: 1_500,
    tls: {
      mode: 'acme',
      port: 8443,
      redirect: true,
      proxyProtocol: true,
      certificates: [{ names: ['api.test', '*.apps.test'], cert: join(files, 'own.crt'), key: join(files, 'own.key') }],
      folder: certificates,
      ticketKeys: Buffer.alloc(48, 7),
    },
  });
  workerd = await startWorkerd(harness.folder, 'tls', MODULE);
  harness.onAcquire = () => ({ socket: workerd.socket, generation: 1 });
  await harness.edge.call('setRoutes', [
    route('hello', { domains: ['shop.test', 'late.test'], maxBodyBytes: 6_000_000 }),
    route('slow'),
  ]);
  const server = await listening();
  port = (server.address() as AddressInfo).port;
  await harness.edge.call('listen', { kind: 'https' }, server);
  server.close();
});

afterAll(async () => {
  await workerd?.stop();
  await harness?.close();
  await rm(join(certificates, '..'), { recursive: true, force: true });
});

function tls(servername: string, options: object = {}): Promise<TLSSocket> {
  return new Promise((resolve, reject) => {
    const socket = connectTls({ host: '127.0.0.1', port, servername, rejectUnauthorized: false, ...options });
    socket.once('secureConnect', () => resolve(socket));
    socket.once('error', reject);
  });
}

interface Seen {
  url: string;
  method: string;
  body: string;
  headers: Record<string, string>;
  cf: Record<string, string>;
}

function get(name: string, path: string): Promise<{ status: number; seen: Seen }> {
  return new Promise((resolve, reject) => {
    const options = {
      host: '127.0.0.1',
      port,
      servername: name,
      path,
      headers: { host: name },
      rejectUnauthorized: false,
    };
    const request = httpsRequest({ ...options, agent: false }, (response) => {
      let text = '';
      response.on('data', (chunk) => {
        text += chunk;
      });
      response.on('end', () => resolve({ status: response.statusCode ?? 0, seen: JSON.parse(text) as Seen }));
    });
    request.on('error', reject);
    request.end();
  });
}

function http2(name: string): ClientHttp2Session {
  return connectHttp2(`https://${name}:${port}`, {
    createConnection: () =>
      connectTls({ host: '127.0.0.1', port, servername: name, ALPNProtocols: ['h2'], rejectUnauthorized: false }),
  });
}

interface Answer {
  status: number;
  headers: Record<string, unknown>;
  body: string;
}

function ask(
  session: ClientHttp2Session,
  headers: Record<string, string | string[]>,
  body?: string | Buffer,
): Promise<Answer> {
  return new Promise((resolve, reject) => {
    const stream = session.request(headers, { endStream: body === undefined });
    const answer: Answer = { status: 0, headers: {}, body: '' };
    stream.on('response', (received) => {
      answer.status = Number(received[':status']);
      answer.headers = received;
    });
    stream.on('data', (chunk) => {
      answer.body += chunk.toString('latin1');
    });
    stream.on('end', () => resolve(answer));
    stream.on('error', reject);
    if (body !== undefined) stream.end(body);
  });
}

describe('certificates', () => {
  test.each([
    ['api.test', 'api.test'],
    ['anything.apps.test', 'api.test'],
    ['shop.test', 'shop.test'],
    ['SHOP.test', 'shop.test'],
  ])('%s is shown the certificate of %s', async (name, subject) => {
    const socket = await tls(name);
    expect(socket.getPeerCertificate().subject.CN).toBe(subject);
    socket.destroy();
  });

  test.each(['nobody.test', 'a.b.apps.test', 'apps.test.evil', '../own'])('%s is shown none', async (name) => {
    await expect(tls(name)).rejects.toThrow();
  });

  test('one that comes later is found, a renewed one is shown, one that goes is not', async () => {
    await expect(tls('late.test')).rejects.toThrow();
    await addToFolder('late.test', 'late.test');
    await harness.edge.call('certificateChanged', { name: 'late.test' });
    const first = await tls('late.test');
    const serial = first.getPeerCertificate().serialNumber;
    await addToFolder('late.test', 'late.test');
    await harness.edge.call('certificateChanged', { name: 'late.test' });
    const second = await tls('late.test');
    expect(second.getPeerCertificate().serialNumber).not.toBe(serial);
    await rm(join(certificates, 'late.test.pem'));
    await harness.edge.call('certificateChanged', { name: 'late.test' });
    await expect(tls('late.test')).rejects.toThrow();
    first.destroy();
    second.destroy();
  });

  test('a caller that names no host is shown the certificate of the host itself, renewed ones too', async () => {
    const shown = () => unnamed('x509', '-noout', '-subject', '-serial');
    const first = await shown();
    expect(first).toContain('api.test');
    const own = makeCertificate('api.test', '*.apps.test');
    await replaceOwn(own);
    await harness.edge.call('certificateChanged', { name: 'api.test' });
    const second = await shown();
    expect(second).toContain('api.test');
    expect(second).not.toBe(first);
    // Half a replacement, as a copy in progress may leave it: what was shown stays.
    await replaceOwn({ cert: makeCertificate('api.test').cert, key: own.key });
    await harness.edge.call('certificateChanged', { name: 'api.test' });
    expect(await shown()).toBe(second);
    await replaceOwn(own);
  });

  test('a caller that names no host is answered, and its sessions resume', async () => {
    const first = await tls('', { maxVersion: 'TLSv1.3' });
    let answer = '';
    first.on('data', (chunk) => {
      answer += chunk;
    });
    const session = await new Promise<Buffer>((resolve) => {
      first.once('session', resolve);
      first.write('GET /hello/x HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n');
    });
    await until(() => answer.includes('"method":"GET"'));
    first.destroy();
    const second = await tls('', { session });
    expect(second.isSessionReused()).toBe(true);
    second.destroy();
  });

  test('no OCSP response is stapled, even to callers that ask', async () => {
    const client = spawn(
      'openssl',
      ['s_client', '-connect', `127.0.0.1:${port}`, '-servername', 'shop.test', '-status'],
      {
        stdio: ['ignore', 'pipe', 'ignore'],
      },
    );
    expect(await text(client.stdout)).toContain('OCSP response: no response sent');
  });

  test.each([
    ['TLSv1.3', 'TLS_AES_128_GCM_SHA256'],
    ['TLSv1.2', 'ECDHE-ECDSA-AES128-GCM-SHA256'],
  ] as const)('%s agrees on %s', async (version, cipher) => {
    const socket = await tls('shop.test', { minVersion: version, maxVersion: version });
    expect(socket.getCipher().name).toBe(cipher);
    socket.destroy();
  });

  test.each(['AES128-SHA', 'AES128-GCM-SHA256', 'ECDHE-ECDSA-AES128-SHA'])('%s is refused', async (ciphers) => {
    await expect(tls('shop.test', { ciphers, maxVersion: 'TLSv1.2' })).rejects.toThrow();
  });

  test('old protocols are refused, sessions resume', async () => {
    await expect(tls('api.test', { maxVersion: 'TLSv1.1', minVersion: 'TLSv1' })).rejects.toThrow();
    const first = await tls('shop.test', { maxVersion: 'TLSv1.3' });
    const session = await new Promise<Buffer>((resolve) => {
      first.once('session', resolve);
      first.write('GET / HTTP/1.1\r\nHost: shop.test\r\n\r\n');
    });
    first.destroy();
    const second = await tls('shop.test', { session });
    expect(second.isSessionReused()).toBe(true);
    second.destroy();
  });

  test('a challenge is answered with its own certificate, everybody else gets the real one', async () => {
    const { cert, key } = makeCertificate('shop.test');
    await harness.edge.call('setTlsChallenge', { name: 'shop.test', pem: key + cert });
    const authority = await tls('shop.test', { ALPNProtocols: ['acme-tls/1'] });
    expect(authority.alpnProtocol).toBe('acme-tls/1');
    expect(authority.getPeerCertificate().raw.toString('base64')).toBe(cert.replaceAll(/-----[^-]*-----|\n/g, ''));
    const caller = await tls('shop.test');
    expect(caller.getPeerCertificate().raw.toString('base64')).not.toBe(cert.replaceAll(/-----[^-]*-----|\n/g, ''));
    await harness.edge.call('setTlsChallenge', { name: 'shop.test', pem: undefined });
    await expect(tls('shop.test', { ALPNProtocols: ['acme-tls/1'] })).rejects.toThrow();
    authority.destroy();
    caller.destroy();
  });
});

describe('HTTP/1.1', () => {
  test('a request over TLS', async () => {
    const { status, seen } = await get('shop.test', '/x?y');
    expect(status).toBe(200);
    expect(seen.url).toBe('https://shop.test/x?y');
    expect(seen.cf).toMatchObject({ httpProtocol: 'HTTP/1.1', tlsVersion: 'TLSv1.3' });
  });

  test('a WebSocket over TLS', async () => {
    const options: ConnectionOptions & ClientOptions = {
      servername: 'shop.test',
      headers: { host: 'shop.test' },
      rejectUnauthorized: false,
    };
    const socket = new WebSocket(`wss://127.0.0.1:${port}/`, options);
    await new Promise((resolve, reject) => {
      socket.once('open', resolve);
      socket.once('error', reject);
    });
    const answer = new Promise((resolve) => socket.once('message', (data) => resolve(String(data))));
    socket.send('hello');
    expect(await answer).toBe('hello');
    socket.terminate();
  });
});

describe('HTTP/2', () => {
  test('requests side by side, with bodies both ways', async () => {
    const session = http2('shop.test');
    const answers = await Promise.all([
      ask(session, { ':path': '/a?b', cookie: ['c=1', 'd=2'], 'x-payer': 'me' }),
      ask(session, { ':method': 'POST', ':path': '/p' }, 'streamed'),
      ask(session, { ':method': 'PUT', ':path': '/q', 'content-length': '5' }, 'sized'),
      ask(session, { ':method': 'POST', ':path': '/count' }, Buffer.alloc(5_000_000)),
      ask(session, { ':path': '/big' }),
      ask(session, { ':method': 'HEAD', ':path': '/h' }),
    ]);
    session.destroy();
    expect(answers.map(({ status }) => status)).toEqual([200, 200, 200, 200, 200, 200]);
    const first = JSON.parse(answers[0]!.body) as Seen;
    expect(first.url).toBe(`https://shop.test:${port}/a?b`);
    expect(first.headers).toMatchObject({ cookie: 'c=1; d=2', 'x-forwarded-host': `shop.test:${port}` });
    expect(first.headers['x-payer']).toBeUndefined();
    expect(first.cf.httpProtocol).toBe('HTTP/2');
    expect(answers[0]!.headers['set-cookie']).toEqual(['a=1', 'b=2']);
    expect(JSON.parse(answers[1]!.body)).toMatchObject({ method: 'POST', body: 'streamed' });
    expect(JSON.parse(answers[2]!.body)).toMatchObject({ method: 'PUT', body: 'sized' });
    expect(answers[3]!.body).toBe('{"bytes":5000000}');
    expect(answers[4]!.body).toHaveLength(5_000_000);
    expect(answers[5]!.body).toBe('');
  });

  test.each<[string, Record<string, string>]>([
    ['a line end in a path', { ':path': '/x HTTP/1.1\r\nhost: y\r\n\r\nGET /' }],
    ['a space in a path', { ':path': '/a b' }],
    ['a path that is none', { ':path': 'x' }],
    ['a method that is none', { ':path': '/', ':method': 'GE T' }],
    ['a host beside another authority', { ':path': '/', ':authority': 'shop.test', host: 'other.test' }],
    ['an authority that is none', { ':path': '/', ':authority': 'a b' }],
    ['a length that is none', { ':path': '/', 'content-length': '+1' }],
  ])('%s never reaches a handler', async (_name, headers) => {
    const session = http2('shop.test');
    session.on('error', () => {});
    const answer = await ask(session, headers).catch((error: Error) => error);
    if (!(answer instanceof Error)) {
      expect(answer.status).toBe(400);
      expect(answer.body).toContain('bad_request');
    }
    session.destroy();
    expect((await get('shop.test', '/x')).status).toBe(200);
  });

  test('a body that is longer or shorter than declared ends the stream', async () => {
    for (const declared of ['2', '9']) {
      const session = http2('shop.test');
      session.on('error', () => {});
      const headers = { ':method': 'POST', ':path': '/p', 'content-length': declared };
      const answer = await ask(session, headers, 'abcd').catch((error: Error) => error);
      if (!(answer instanceof Error)) expect(answer.body).not.toContain('"method"');
      session.destroy();
    }
  });

  test('a body over the limit is 413', async () => {
    const session = http2('shop.test');
    session.on('error', () => {});
    const answer = await ask(session, { ':method': 'POST', ':path': '/count' }, Buffer.alloc(7_000_000)).catch(
      () => undefined,
    );
    if (answer) expect(answer.status).toBe(413);
    session.destroy();
  });

  test('a caller that resets its stream leaves nothing in flight', async () => {
    const session = http2('anything.apps.test');
    const stream = session.request({ ':path': '/forever', ':authority': 'slow.apps.test' });
    await new Promise((resolve) => stream.once('data', resolve));
    stream.close(constants.NGHTTP2_CANCEL);
    await until(() => {
      const last = harness.traffic.findLast(({ slug }) => slug === 'slow');
      return last !== undefined && last.inFlight === 0;
    });
    session.destroy();
  });

  test('a caller that does not read is cut off', async () => {
    const session = http2('anything.apps.test');
    session.on('error', () => {});
    const stream = session.request({ ':path': '/forever', ':authority': 'slow.apps.test' });
    stream.on('error', () => {});
    stream.pause();
    const status = await new Promise((resolve) => stream.on('response', (headers) => resolve(headers[':status'])));
    expect(status).toBe(200);
    await until(() => stream.rstCode !== 0 || stream.destroyed || stream.aborted).catch(async () => {
      // The reset waits behind unread data on the client's side; the server's side is what counts.
      const last = harness.traffic.findLast(({ slug }) => slug === 'slow');
      expect(last?.inFlight).toBe(0);
    });
    session.destroy();
  });

  test('a thousand streams that are reset at once do no harm', async () => {
    const session = http2('shop.test');
    session.on('error', () => {});
    for (let i = 0; i < 1_000 && !session.destroyed; i += 1) {
      const stream = session.request({ ':path': '/x' });
      stream.on('error', () => {});
      stream.close(constants.NGHTTP2_CANCEL);
    }
    expect((await get('shop.test', '/x')).status).toBe(200);
    session.destroy();
  });
});

describe('redirects', () => {
  async function plain(host: string, path: string): Promise<{ status: number; location: string | null }> {
    const { request } = await import('node:http');
    return await new Promise((resolve, reject) => {
      const asked = request({ host: '127.0.0.1', port: harness.port, path, headers: { host } }, (response) => {
        response.resume();
        resolve({ status: response.statusCode ?? 0, location: response.headers.location ?? null });
      });
      asked.on('error', reject);
      asked.end();
    });
  }

  test('names with a certificate are sent to HTTPS; challenges, and names without one, are not', async () => {
    expect(await plain('shop.test', '/a?b')).toEqual({ status: 308, location: 'https://shop.test:8443/a?b' });
    expect(await plain('api.test:80', '/hello/')).toEqual({ status: 308, location: 'https://api.test:8443/hello/' });
    expect((await plain('shop.test', '/.well-known/acme-challenge/x')).status).toBe(200);
    expect((await plain('localhost', '/hello/')).status).toBe(200);
  });
});

describe('PROXY protocol', () => {
  const HEADER = Buffer.concat([
    Buffer.from('0d0a0d0a000d0a515549540a2111000c', 'hex'),
    Buffer.from([203, 0, 113, 9, 127, 0, 0, 1]),
    Buffer.from('30390050', 'hex'),
  ]);

  /** As the proxy that is trusted: from 127.0.0.2. */
  function fromProxy(to: number): ReturnType<typeof connectTcp> {
    const socket = connectTcp({ host: '127.0.0.1', port: to, localAddress: '127.0.0.2' });
    socket.on('error', () => {});
    return socket;
  }

  test('the caller it names is believed from a trusted proxy, over TLS and without', async () => {
    const plain = fromProxy(harness.port);
    let received = '';
    plain.on('data', (chunk) => {
      received += chunk;
    });
    // In pieces, as a network may deliver it.
    plain.write(HEADER.subarray(0, 7));
    plain.write(HEADER.subarray(7));
    plain.write('GET /hello/x HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n');
    await until(() => received.includes('203.0.113.9'));
    plain.destroy();

    const secure = fromProxy(port);
    secure.write(HEADER);
    const socket = connectTls({ socket: secure, servername: 'shop.test', rejectUnauthorized: false });
    let answer = '';
    socket.on('data', (chunk) => {
      answer += chunk;
    });
    socket.write('GET /x HTTP/1.1\r\nHost: shop.test\r\n\r\n');
    await until(() => answer.includes('"cf-connecting-ip":"203.0.113.9"'));
    socket.destroy();
  });

  test('a trusted proxy without a header is not served; from others a header is nonsense', async () => {
    const without = fromProxy(harness.port);
    without.write('GET /hello/x HTTP/1.1\r\nHost: x\r\n\r\n');
    await new Promise((resolve) => without.once('close', resolve));
    const forged = connectTcp(harness.port, '127.0.0.1');
    let received = '';
    forged.on('data', (chunk) => {
      received += chunk;
    });
    forged.on('error', () => {});
    forged.write(HEADER);
    forged.write('GET /hello/x HTTP/1.1\r\nHost: x\r\n\r\n');
    await new Promise((resolve) => forged.once('close', resolve));
    expect(received).toMatch(/^HTTP\/1\.1 400 /);
  });
});

test('noise on the TLS port does no harm', async () => {
  const noise = await readFile('/proc/self/maps');
  for (const bytes of [
    noise.subarray(0, 5_000),
    Buffer.from('GET / HTTP/1.1\r\n\r\n'),
    Buffer.from([0x16, 3, 1, 0xff, 0xff]),
  ]) {
    const socket = connectTcp(port, '127.0.0.1');
    socket.on('error', () => {});
    socket.resume();
    socket.end(bytes);
    await new Promise((resolve) => socket.once('close', resolve));
  }
  expect((await get('shop.test', '/x')).status).toBe(200);
});

test('a caller over HTTP/2 that does not read makes the handler wait, also where its pieces are small', async () => {
  const before = await residentBytes();
  const session = http2('anything.apps.test');
  session.on('error', () => {});
  const stream = session.request({ ':path': '/small', ':authority': 'slow.apps.test' });
  stream.on('error', () => {});
  stream.pause();
  await new Promise((resolve) => stream.on('response', resolve));
  await until(() => harness.traffic.findLast(({ slug }) => slug === 'slow')?.inFlight === 0);
  expect((await residentBytes()) - before).toBeLessThan(60_000_000);
  session.destroy();
});

test('a thousand domains: certificates are loaded when they are asked for, and sessions go on in another edge', async () => {
  const folder = join(certificates, '..', 'many');
  await mkdir(folder);
  const { cert, key } = makeCertificate('*.many.test', 'shop.test');
  // Authorities send a chain of two or three.
  const pem = key + cert + cert;
  const names = Array.from({ length: 1_000 }, (_, index) => `d${index}.many.test`);
  await Promise.all(['shop.test', ...names].map((name) => writeFile(join(folder, `${name}.pem`), pem)));
  const ticketKeys = Buffer.alloc(48, 7);
  const many = await startHarness({ tls: { mode: 'acme', folder, ticketKeys } });
  const none = await startHarness({ tls: { mode: 'acme', folder: join(folder, 'none'), ticketKeys } });
  try {
    const server = await listening();
    const to = { port: (server.address() as AddressInfo).port };
    await many.edge.call('listen', { kind: 'https' }, server);
    server.close();
    const start = await residentBytes(many);
    expect(start - (await residentBytes(none))).toBeLessThan(20_000_000);

    const queue = names.values();
    const ask = async () => {
      for (const name of queue) {
        const socket = await tls(name, to);
        expect(socket.getPeerCertificate().subject.CN).toBe('*.many.test');
        socket.destroy();
      }
    };
    await Promise.all([ask(), ask(), ask(), ask()]);
    const loaded = (await residentBytes(many)) - start;
    console.info({ kilobytesOfACertificate: Math.round(loaded / names.length / 1_000) });
    expect(loaded).toBeLessThan(names.length * 150_000);

    const here = await tls('shop.test', { maxVersion: 'TLSv1.3' });
    const session = await new Promise<Buffer>((resolve) => {
      here.once('session', resolve);
      here.write('GET / HTTP/1.1\r\nHost: shop.test\r\n\r\n');
    });
    here.destroy();
    const there = await tls('shop.test', { ...to, session });
    expect(there.isSessionReused()).toBe(true);
    there.destroy();
  } finally {
    await many.close();
    await none.close();
  }
});

async function residentBytes(of: Harness = harness): Promise<number> {
  const status = await readFile(`/proc/${of.process.pid}/status`, 'utf8');
  return Number(/VmRSS:\s+(\d+)/.exec(status)?.[1]) * 1024;
}
