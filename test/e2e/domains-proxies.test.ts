/** The examples in config/: Caddy and nginx in front of the real host, and the service file; HAProxy with PROXY headers. */
import { execFileSync, spawn } from 'node:child_process';
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import WebSocket from 'ws';
import { type Authority, openAuthority, selfSigned, startZone, type Zone } from './support/authority.ts';
import { deploy, jsonPost, mppFetch } from './support/callers.ts';
import { type CurlAnswer, curl } from './support/curl.ts';
import { startHost, type TestHost } from './support/host.ts';
import { freePort } from './support/ports.ts';
import { available, type Program, startProgram } from './support/programs.ts';
import { until } from './support/until.ts';

const ROOT = fileURLToPath(new URL('../../', import.meta.url));
const CODE = `export default { fetch(request) {
  if (request.headers.get('upgrade') === 'websocket') {
    const [client, server] = Object.values(new WebSocketPair());
    server.accept();
    server.addEventListener('message', ({ data }) => server.send(data));
    return new Response(null, { status: 101, webSocket: client });
  }
  return Response.json({ url: request.url, ip: request.headers.get('cf-connecting-ip'),
    forwarded: request.headers.get('x-forwarded-for'), proto: new URL(request.url).protocol });
} }`;

interface Seen {
  url: string;
  ip: string;
  forwarded: string;
  proto: string;
}

let folder: string;
let host: TestHost;
let zone: Zone;
let token: string;

beforeAll(async () => {
  folder = await mkdtemp(path.join(tmpdir(), 'proxies-'));
  zone = await startZone();
  host = await startHost({
    flags: {
      'public-url': 'https://api.example.com',
      'base-domain': 'tenants.example.com',
      'trusted-proxies': JSON.stringify(['127.0.0.1/32']),
      'domains-resolver': zone.address,
    },
  });
  const owner = mppFetch(host.network, 0);
  await deploy(owner, host.url, { slug: 'shopapp', code: CODE });
  const session = await owner(`${host.url}/_admin/session/shopapp`, { method: 'POST' });
  token = ((await session.json()) as { token: string }).token;
});
afterAll(async () => {
  await host?.stop();
  zone?.stop();
  await rm(folder, { recursive: true, force: true });
});

const seen = (answer: CurlAnswer): Seen => {
  expect(answer, answer.error).toMatchObject({ exit: 0, status: 200 });
  return JSON.parse(answer.body) as Seen;
};

/** A text of config/ with what is different here; every part must be there, or the example has changed. */
async function example(file: string, replaced: [string, string][]): Promise<string> {
  let text = await readFile(path.join(ROOT, 'config', file), 'utf8');
  for (const [from, to] of replaced) {
    expect(text, `${file} is expected to contain ${from}`).toContain(from);
    text = text.replaceAll(from, to);
  }
  return text;
}

async function attach(domain: string, verify: boolean): Promise<void> {
  const endpoint = `${host.url}/_admin/shopapp/domains`;
  const headers = { authorization: `Bearer ${token}` };
  const answer = await fetch(endpoint, jsonPost({ domain }, headers));
  const { dns } = (await answer.json()) as { dns: { type: string; name: string; value: string }[] };
  if (!verify) return;
  const record = dns.find(({ type }) => type === 'TXT');
  zone.texts.set(record?.name ?? '', [record?.value ?? '']);
  await until(async () => {
    const { domains } = (await (await fetch(endpoint, { headers })).json()) as {
      domains: { domain: string; state: string }[];
    };
    return domains.some((one) => one.domain === domain && one.state === 'active') ? true : undefined;
  });
}

describe.skipIf(!available('caddy', 'pebble', 'curl', 'openssl'))(
  'Caddy with on-demand TLS, as in Caddyfile.example',
  () => {
    let authority: Authority;
    let caddy: Program;
    let httpPort: number;
    let tlsPort: number;

    beforeAll(async () => {
      [httpPort, tlsPort] = [await freePort(), await freePort()];
      authority = await openAuthority({ httpPort, tlsPort, zone });
      await authority.start();
      const files = { cert: path.join(folder, 'wildcard.crt'), key: path.join(folder, 'wildcard.key') };
      selfSigned(['*.tenants.example.com'], files);
      const text = await example('Caddyfile.example', [
        [
          '\ton_demand_tls {',
          `\tadmin off\n\thttp_port ${httpPort}\n\thttps_port ${tlsPort}\n\tstorage file_system ${folder}/caddy\n\tacme_ca ${authority.directory}\n\tacme_ca_root ${authority.caFile}\n\ton_demand_tls {`,
        ],
        ['127.0.0.1:8403', `127.0.0.1:${host.adminPort}`],
        ['127.0.0.1:8402', `127.0.0.1:${host.port}`],
        ['/etc/ssl/tenants.example.com', path.join(folder, 'wildcard')],
      ]);
      await writeFile(path.join(folder, 'Caddyfile'), text);
      const args = ['run', '--config', path.join(folder, 'Caddyfile'), '--adapter', 'caddyfile'];
      caddy = await startProgram('caddy', args, tlsPort, { HOME: folder });
    });
    afterAll(async () => {
      await caddy?.stop();
      await authority?.close();
    });

    it('serves verified names with certificates that it gets by itself, and exactly those', async () => {
      await attach('shop.test', true);
      await attach('waiting.test', false);
      for (const version of ['1.1', '2'] as const) {
        const answer = await curl(`https://shop.test:${tlsPort}/a?b=1`, { root: authority.rootFile, version });
        expect(answer.version).toBe(version);
        expect(seen(answer)).toMatchObject({ url: `https://shop.test:${tlsPort}/a?b=1`, proto: 'https:' });
      }
      for (const name of ['waiting.test', 'stranger.test', 'x.shop.test']) {
        const refused = await curl(`https://${name}:${tlsPort}/`, { root: authority.rootFile });
        expect(refused.exit, name).toBe(35);
        expect(authority.output(), name).not.toContain(name);
      }
      expect(authority.output()).toContain('shop.test');
      const again = await fetch(`${host.url}/_admin/shopapp/domains/shop.test`, {
        method: 'DELETE',
        headers: { authorization: `Bearer ${token}` },
      });
      expect(again.status).toBe(204);
      const ask = await fetch(`http://127.0.0.1:${host.adminPort}/ask?domain=shop.test`);
      expect(ask.status).toBe(404);
      expect((await curl(`https://shop.test:${tlsPort}/`, { root: authority.rootFile })).status).toBe(404);
    });

    it('passes on who is calling, over any claim of the caller', async () => {
      const root = authority.rootFile;
      await until(async () =>
        (await curl(`https://api.example.com:${tlsPort}/healthz`, { root })).status === 200 ? true : undefined,
      );
      const headers = {
        'x-forwarded-for': '203.0.113.9',
        'x-forwarded-proto': 'http',
        'x-forwarded-host': 'evil.test',
      };
      const path_ = seen(
        await curl(`https://api.example.com:${tlsPort}/shopapp/x`, { root, headers, from: '127.0.0.5' }),
      );
      expect(path_).toEqual({
        url: `https://api.example.com:${tlsPort}/x`,
        ip: '127.0.0.5',
        forwarded: '127.0.0.5',
        proto: 'https:',
      });
      const wildcard = path.join(folder, 'wildcard.crt');
      const sub = seen(await curl(`https://shopapp.tenants.example.com:${tlsPort}/x`, { root: wildcard }));
      expect(sub.url).toBe(`https://shopapp.tenants.example.com:${tlsPort}/x`);
    });
  },
);

describe.skipIf(!available('nginx', 'curl', 'openssl'))('nginx, as in nginx.conf.example', () => {
  let nginx: Program;
  let httpPort: number;
  let tlsPort: number;
  const cert = () => path.join(folder, 'turnpike.crt');

  beforeAll(async () => {
    [httpPort, tlsPort] = [await freePort(), await freePort()];
    selfSigned(['api.example.com', '*.tenants.example.com'], { cert: cert(), key: path.join(folder, 'turnpike.key') });
    const text = await example('nginx.conf.example', [
      ['127.0.0.1:8402', `127.0.0.1:${host.port}`],
      ['listen 80 ', `listen 127.0.0.1:${httpPort} `],
      ['listen 443 ', `listen 127.0.0.1:${tlsPort} `],
      ['/etc/ssl/turnpike', path.join(folder, 'turnpike')],
    ]);
    const own = path.join(folder, 'nginx');
    await mkdir(own);
    const temporary = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi'].map(
      (kind) => `${kind}_temp_path ${own}/${kind};`,
    );
    await writeFile(
      path.join(own, 'nginx.conf'),
      `daemon off; master_process off; pid ${own}/pid; error_log stderr; events {} http { access_log off; ${temporary.join(' ')}\n${text}}`,
    );
    nginx = await startProgram('nginx', ['-c', path.join(own, 'nginx.conf'), '-p', own], tlsPort);
  });
  afterAll(() => nginx?.stop());

  it.each(['1.1', '2'] as const)(
    'passes on who is calling, over any claim of the caller, by HTTP/%s',
    async (version) => {
      const headers = {
        'x-forwarded-for': '203.0.113.9',
        'x-forwarded-proto': 'http',
        'x-forwarded-host': 'evil.test',
      };
      const options = { root: cert(), version, headers, from: '127.0.0.5' };
      const shared = await curl(`https://api.example.com:${tlsPort}/shopapp/x?y`, options);
      expect(shared.version).toBe(version);
      expect(seen(shared)).toEqual({
        url: `https://api.example.com:${tlsPort}/x?y`,
        ip: '127.0.0.5',
        forwarded: '127.0.0.5',
        proto: 'https:',
      });
      const sub = seen(await curl(`https://shopapp.tenants.example.com:${tlsPort}/x`, options));
      expect(sub.url).toBe(`https://shopapp.tenants.example.com:${tlsPort}/x`);
    },
  );

  it('passes WebSockets, and sends plain requests to HTTPS', async () => {
    const socket = new WebSocket(`wss://api.example.com:${tlsPort}/shopapp/`, {
      ca: await readFile(cert(), 'utf8'),
      lookup: (_name: string, _options: object, done: (error: null, found: object[]) => void) =>
        done(null, [{ address: '127.0.0.1', family: 4 }]),
    } as never);
    const echoed = await new Promise<string>((resolve, reject) => {
      socket.on('open', () => socket.send('hello'));
      socket.on('message', (data) => resolve(String(data)));
      socket.on('error', reject);
    });
    socket.close();
    expect(echoed).toBe('hello');
    const plain = await curl(`http://api.example.com:${httpPort}/shopapp/x`);
    expect(plain).toMatchObject({ status: 308 });
    expect(plain.headers.get('location')?.trim()).toBe('https://api.example.com/shopapp/x');
  });
});

describe('forwarded fields without a proxy that is trusted', () => {
  it('are believed from trusted addresses alone', async () => {
    const headers = { 'x-forwarded-for': '203.0.113.9', 'x-forwarded-proto': 'https' };
    const url = `http://shopapp.tenants.example.com:${host.port}/x`;
    expect(seen(await curl(url, { headers, from: '127.0.0.1' }))).toMatchObject({ ip: '203.0.113.9', proto: 'https:' });
    expect(seen(await curl(url, { headers, from: '127.0.0.6' }))).toMatchObject({ ip: '127.0.0.6', proto: 'http:' });
  });
});

describe.skipIf(!available('haproxy', 'curl', 'openssl'))('PROXY protocol v2, from HAProxy', () => {
  let behind: TestHost;
  let haproxy: Program;
  let ports: { plain: number; tls: number; hostTls: number };
  const cert = () => path.join(folder, 'own.crt');

  beforeAll(async () => {
    ports = { plain: await freePort(), tls: await freePort(), hostTls: await freePort() };
    selfSigned(['api.example.com', '*.tenants.example.com'], { cert: cert(), key: path.join(folder, 'own.key') });
    behind = await startHost({
      flags: {
        'base-domain': 'tenants.example.com',
        'trusted-proxies': JSON.stringify(['127.0.0.2/32']),
        'tls-mode': 'files',
        'tls-port': String(ports.hostTls),
        'tls-redirect': 'false',
        'tls-proxy-protocol': 'true',
        'tls-certificates': JSON.stringify([
          { names: ['api.example.com', '*.tenants.example.com'], cert: cert(), key: path.join(folder, 'own.key') },
        ]),
      },
    });
    await deploy(mppFetch(behind.network, 0), behind.url, { slug: 'shopapp', code: CODE });
    const cfg = path.join(folder, 'haproxy.cfg');
    const example = await readFile(path.join(ROOT, 'config/cluster/haproxy-tls.cfg'), 'utf8');
    // The address that the host trusts.
    await writeFile(cfg, example.replace('default-server send-proxy-v2', '$& source 127.0.0.2'));
    const at = (port: number) => `127.0.0.1:${port}`;
    haproxy = await startProgram('haproxy', ['-f', cfg, '-db'], ports.tls, {
      ...{ PLAIN: at(ports.plain), TLS: at(ports.tls) },
      ...{ NODE_A: at(behind.port), NODE_A_TLS: at(ports.hostTls) },
      ...{ NODE_B: at(behind.port), NODE_B_TLS: at(ports.hostTls) },
    });
  });
  afterAll(async () => {
    await haproxy?.stop();
    await behind?.stop();
  });

  it('names the caller, with certificates from files over TLS and without TLS', async () => {
    for (const version of ['1.1', '2'] as const) {
      const url = `https://shopapp.tenants.example.com:${ports.tls}/x`;
      const secure = await curl(url, {
        root: cert(),
        version,
        from: '127.0.0.7',
        headers: { 'x-forwarded-for': '203.0.113.9' },
      });
      expect(secure.version).toBe(version);
      expect(seen(secure)).toMatchObject({ ip: '127.0.0.7', proto: 'https:' });
    }
    const plain = await curl(`http://shopapp.tenants.example.com:${ports.plain}/x`, { from: '127.0.0.8' });
    expect(seen(plain)).toMatchObject({ ip: '127.0.0.8', proto: 'http:' });
  });

  it('serves callers that come past the proxy as themselves', async () => {
    const direct = await curl(`https://shopapp.tenants.example.com:${ports.hostTls}/x`, {
      root: cert(),
      from: '127.0.0.9',
    });
    expect(seen(direct)).toMatchObject({ ip: '127.0.0.9', proto: 'https:' });
    const headless = await curl(`https://shopapp.tenants.example.com:${ports.hostTls}/x`, {
      root: cert(),
      from: '127.0.0.2',
    });
    expect(headless.exit, 'the proxy without its header').not.toBe(0);
  });
});

describe('pages of the host itself', () => {
  it.each([
    ['/', /^$/],
    ['/docs', /^script-src 'self'$/],
  ])('%s carries no script of its own, cannot be framed, and sets no cookie', async (page, scripts) => {
    const answer = await fetch(host.url + page);
    expect(answer.status).toBe(200);
    const policy = answer.headers.get('content-security-policy') ?? '';
    for (const part of ["default-src 'none'", "frame-ancestors 'none'", "base-uri 'none'", "form-action 'none'"]) {
      expect(policy.split('; ')).toContain(part);
    }
    expect(policy.split('; ').find((part) => part.startsWith('script-src')) ?? '').toMatch(scripts);
    expect(answer.headers.get('x-content-type-options')).toBe('nosniff');
    expect(answer.headers.get('referrer-policy')).toBe('no-referrer');
    expect(answer.headers.getSetCookie()).toEqual([]);
    // The search of /docs is a file.
    expect(await answer.text()).not.toMatch(/<script(?! type="module" src="\/[\w./-]+")/i);
  });

  it.each(['/llms.txt', '/openapi.json', '/healthz', '/nothing-here'])('%s is not sniffed', async (page) => {
    const answer = await fetch(host.url + page);
    expect(answer.headers.get('x-content-type-options')).toBe('nosniff');
    await answer.arrayBuffer();
  });

  it('are not on the origin of a tenant, and the operator is not on the public port', async () => {
    for (const page of ['/', '/docs', '/llms.txt', '/_admin/get/shopapp', '/healthz']) {
      const answer = seen(await curl(`http://shopapp.tenants.example.com:${host.port}${page}`));
      expect(answer.url, 'the tenant answers').toContain(`shopapp.tenants.example.com:${host.port}${page}`);
    }
    for (const page of ['/ask?domain=shop.test', '/metrics', '/clock', '/dashboard']) {
      const answer = await fetch(host.url + page);
      expect(answer.status, page).toBe(404);
      await answer.arrayBuffer();
    }
  });
});

describe('certificate files', () => {
  it('that are missing, or no pair, are told of at the start', async () => {
    const files = { cert: path.join(folder, 'pair.crt'), key: path.join(folder, 'pair.key') };
    selfSigned(['a.test'], files);
    selfSigned(['b.test'], { cert: path.join(folder, 'other.crt'), key: path.join(folder, 'other.key') });
    const started = (cert: string, key: string) =>
      startHost({
        flags: {
          'tls-mode': 'files',
          'tls-port': '0',
          'tls-certificates': JSON.stringify([{ names: ['a.test'], cert, key }]),
        },
      });
    const pair = await started(files.cert, path.join(folder, 'other.key')).catch((error: Error) => error);
    expect(String(pair)).toMatch(/turnpike: .*other\.key does not belong/);
    // Before anything else was started.
    expect(String(pair)).not.toMatch(/"level"/);
    await expect(started('/nonexistent.crt', files.key)).rejects.toThrow(/there is no file \/nonexistent\.crt/);
  });
});

describe('turnpike.service', () => {
  it.skipIf(!available('systemd-analyze'))('is what systemd understands', () => {
    execFileSync('systemd-analyze', ['verify', path.join(ROOT, 'config/turnpike.service')], { stdio: 'pipe' });
  });

  it('starts the host with its command, and ends it with its signal in its time', async () => {
    const unit = await example('turnpike.service', [
      ['/opt/turnpike', ROOT.replace(/\/$/, '')],
      ['/var/lib/turnpike', folder],
    ]);
    const value = (key: string) => new RegExp(`^${key}=(.*)$`, 'm').exec(unit)?.[1] ?? '';
    const [command = '', ...args] = value('ExecStart').split(' ');
    const quick = ['--port', '0', '--admin-port', '0', '--builtin-tenants-enabled', '[]'];
    const child = spawn(command, [...args, ...quick], {
      cwd: value('WorkingDirectory'),
      stdio: 'pipe',
      env: { PATH: process.env.PATH ?? '', HOME: folder },
    });
    let output = '';
    child.stderr.on('data', (text) => {
      output += text;
    });
    const ended = new Promise<number | null>((resolve) => child.once('exit', (code) => resolve(code)));
    try {
      await until(
        async () => {
          if (child.exitCode !== null) throw new Error(output);
          const { port } = JSON.parse(
            await readFile(path.join(folder, 'data/host.json'), 'utf8').catch(() => '{}'),
          ) as { port?: number };
          if (port === undefined) return undefined;
          return (await fetch(`http://127.0.0.1:${port}/healthz`).catch(() => undefined))?.ok;
        },
        () => output,
      );
    } finally {
      child.kill('SIGTERM');
    }
    const limit = Number(value('TimeoutStopSec')) * 1000;
    const code = await Promise.race([ended, new Promise((resolve) => setTimeout(() => resolve('still there'), limit))]);
    if (code === 'still there') child.kill('SIGKILL');
    expect(code).toBe(0);
  });
});
