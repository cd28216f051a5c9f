/** Tenants' own domains on the real host: verified in a real zone, certified by a real authority, called by stock clients. */

import { execFileSync } from 'node:child_process';
import { createHash, X509Certificate } from 'node:crypto';
import { readdir, readFile, stat, writeFile } from 'node:fs/promises';
import { connect as connectHttp2 } from 'node:http2';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type Authority, openAuthority, startZone, type Zone } from './support/authority.ts';
import { deploy, jsonPost, mppFetch } from './support/callers.ts';
import { type CurlOptions, curl } from './support/curl.ts';
import { startHost, type TestHost } from './support/host.ts';
import { freePort } from './support/ports.ts';
import { available } from './support/programs.ts';
import { until } from './support/until.ts';

const HOUR = 3_600_000;
const DAY = 24 * HOUR;
const CERTIFICATE_DAYS = 60;
const SLUGS = ['one', 'two'];
const REGISTRAR_TOKEN = 'registrar-of-the-test';
const CODE = (text: string) => `export default { fetch(request) {
  return Response.json({ text: ${JSON.stringify(text)}, url: request.url, protocol: request.cf?.httpProtocol }, { headers: [
    ['set-cookie', 'a=1; Path=/'], ['set-cookie', 'b=2; Domain=${text}.test'], ['service-worker-allowed', '/']] });
} }`;

interface DomainView {
  domain: string;
  state: 'pending' | 'verified' | 'active';
  reason?: string;
  dns: { type: string; name: string; value: string }[];
}

describe.skipIf(!available('pebble', 'curl', 'openssl'))('domains with certificates by ACME', () => {
  let zone: Zone;
  let authority: Authority;
  let host: TestHost;
  let tlsPort: number;
  const tokens: Record<string, string> = {};

  beforeAll(async () => {
    zone = await startZone();
    const httpPort = await freePort();
    tlsPort = await freePort();
    authority = await openAuthority({ httpPort, tlsPort, zone, validityDays: CERTIFICATE_DAYS });
    await authority.start();
    host = await startHost({
      flags: {
        port: String(httpPort),
        'tls-mode': 'acme',
        'tls-port': String(tlsPort),
        'tls-acme-directory': authority.directory,
        'tls-acme-ca-file': authority.caFile,
        'public-url': `https://host.test:${tlsPort}`,
        'base-domain': 'host.test',
        'domains-resolver': zone.address,
        'domains-registrar-tokens': JSON.stringify([createHash('sha256').update(REGISTRAR_TOKEN).digest('hex')]),
        'slugs-term-days': '400',
      },
    });
    for (const [index, slug] of SLUGS.entries()) {
      await deploy(mppFetch(host.network, index), host.url, { slug, code: CODE(slug) });
    }
    await logIn();
  });
  afterAll(async () => {
    await host?.stop();
    await authority?.close();
    zone?.stop();
  });

  async function logIn(): Promise<void> {
    for (const [index, slug] of SLUGS.entries()) {
      const session = await mppFetch(host.network, index)(`${host.url}/_admin/session/${slug}`, { method: 'POST' });
      tokens[slug] = ((await session.json()) as { token: string }).token;
    }
  }

  /** Owner tokens live for minutes. */
  async function advance(ms: number): Promise<void> {
    await host.advance(ms);
    await logIn();
  }

  const owner = (slug: string) => ({ authorization: `Bearer ${tokens[slug]}` });
  const endpoint = (slug: string) => `${host.url}/_admin/${slug}/domains`;
  const attach = (slug: string, domain: string) => fetch(endpoint(slug), jsonPost({ domain }, owner(slug)));
  const detach = (slug: string, domain: string) =>
    fetch(`${endpoint(slug)}/${encodeURIComponent(domain)}`, { method: 'DELETE', headers: owner(slug) });

  async function view(slug: string, domain: string): Promise<DomainView> {
    const answer = await fetch(endpoint(slug), { headers: owner(slug) });
    const { domains } = (await answer.json()) as { domains: DomainView[] };
    const found = domains.find((one) => one.domain === domain);
    if (!found) throw new Error(`${slug} has no domain ${domain}`);
    return found;
  }

  async function reached(slug: string, domain: string, matches: (view: DomainView) => boolean): Promise<DomainView> {
    let last: DomainView | undefined;
    return await until(
      async () => {
        last = await view(slug, domain);
        return matches(last) ? last : undefined;
      },
      () => `${domain} stays ${JSON.stringify(last)}\n${host.output().slice(-4_000)}`,
    );
  }

  /** Does what the answer says is to be set in the DNS. */
  function setRecord({ dns }: DomainView): void {
    const record = dns.find(({ type }) => type === 'TXT');
    zone.texts.set(record?.name ?? '', [record?.value ?? '']);
  }

  async function activate(slug: string, domain: string): Promise<void> {
    const answer = await attach(slug, domain);
    expect(answer.status).toBe(202);
    setRecord((await answer.json()) as DomainView);
    await reached(slug, domain, ({ state }) => state === 'active');
  }

  const get = (domain: string, options: CurlOptions = {}) =>
    curl(`https://${domain}:${tlsPort}/path?q=1`, { root: authority.rootFile, ...options });

  const certificateFile = (name: string) => path.join(host.data, 'certificates', `${name}.pem`);

  it('serves the host itself by HTTPS, and sends plain requests there', async () => {
    await until(() =>
      stat(certificateFile('host.test')).then(
        () => true,
        () => undefined,
      ),
    );
    const answer = await curl(`https://host.test:${tlsPort}/one/x`, { root: authority.rootFile, version: '2' });
    expect(answer).toMatchObject({ status: 200, version: '2' });
    const plain = await curl(`http://host.test:${host.port}/one/x?y=1`);
    expect(plain.status).toBe(308);
    expect(plain.headers.get('location')?.trim()).toBe(`https://host.test:${tlsPort}/one/x?y=1`);
  });

  it('shows its own certificate to callers that name no host, and does not wait for a restart', async () => {
    const client = execFileSync(
      'openssl',
      ['s_client', '-connect', `127.0.0.1:${tlsPort}`, '-noservername', '-CAfile', authority.rootFile],
      { input: '', stdio: ['pipe', 'pipe', 'ignore'] },
    ).toString();
    expect(client).toContain('Verify return code: 0 (ok)');
    const shown = new X509Certificate(
      /-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----/.exec(client)?.[0] ?? '',
    );
    expect(shown.subjectAltName).toBe('DNS:host.test');
  });

  it('goes from attached to served, for two tenants at once', async () => {
    const domains = { one: 'api.one.test', two: 'api.two.test' };
    await Promise.all(
      Object.entries(domains).map(async ([slug, domain]) => {
        const answer = await attach(slug, domain);
        expect(answer.status).toBe(202);
        const attached = (await answer.json()) as DomainView;
        expect(attached).toMatchObject({ domain, state: 'pending', reason: expect.stringContaining('_turnpike.') });
        expect(attached.dns).toEqual([
          expect.objectContaining({ type: 'CNAME', name: domain, value: 'host.test' }),
          { type: 'TXT', name: `_turnpike.${domain}`, value: expect.stringMatching(/^tp-[0-9a-f]{32}$/) },
        ]);
        expect((await get(domain)).exit, 'no certificate before it is verified').not.toBe(0);
        setRecord(attached);
        const active = await reached(slug, domain, ({ state }) => state === 'active');
        expect(active.reason).toBeUndefined();
        for (const version of ['1.1', '2'] as const) {
          const called = await get(domain, { version });
          expect(called).toMatchObject({ exit: 0, status: 200, version });
          expect(JSON.parse(called.body)).toEqual({
            text: slug,
            url: `https://${domain}:${tlsPort}/path?q=1`,
            protocol: `HTTP/${version}`,
          });
        }
        const plain = await curl(`http://${domain}:${host.port}/path?q=1`);
        expect(plain.status).toBe(308);
        expect(plain.headers.get('location')?.trim()).toBe(`https://${domain}:${tlsPort}/path?q=1`);
      }),
    );
  });

  it('leaves cookies and service workers to a tenant that has an origin of its own, and confines them elsewhere', async () => {
    const own = await get('api.one.test');
    expect(own.headers.getSetCookie().map((cookie) => cookie.trim())).toEqual(['a=1; Path=/', 'b=2; Domain=one.test']);
    expect(own.headers.get('service-worker-allowed')?.trim()).toBe('/');
    const shared = await get('host.test', {});
    expect(shared.status).toBe(404);
    for (const version of ['1.1', '2'] as const) {
      const below = await curl(`https://host.test:${tlsPort}/one/`, { root: authority.rootFile, version });
      expect(below.headers.getSetCookie().map((cookie) => cookie.trim())).toEqual(['a=1; Path=/one', 'b=2; Path=/one']);
      expect(below.headers.get('service-worker-allowed')).toBeNull();
    }
    const subdomain = await curl(`http://one.host.test:${host.port}/`);
    expect(subdomain.status).toBe(200);
    expect(subdomain.headers.getSetCookie().map((cookie) => cookie.trim())).toEqual(['a=1; Path=/', 'b=2']);
    expect(subdomain.headers.get('service-worker-allowed')?.trim()).toBe('/');
  });

  it('refuses names of others, wildcards, and what is no name', async () => {
    const taken = await attach('two', 'api.one.test');
    expect(taken.status).toBe(409);
    expect(await taken.json()).toMatchObject({ code: 'conflict', detail: expect.stringContaining('another slug') });
    for (const domain of [
      '*.one.test',
      'host.test',
      'x.host.test',
      '127.0.0.1',
      'https://a.test',
      'a',
      'a..test',
      '',
    ]) {
      expect((await attach('one', domain)).status, domain).toBe(400);
    }
    expect((await fetch(endpoint('one'), jsonPost({ domain: 'a.test' }, owner('two')))).status).toBe(401);
  });

  it('takes internationalized names', async () => {
    const name = 'xn--bcher-kva.test';
    const answer = (await (await attach('one', 'Bücher.test')).json()) as DomainView;
    expect(answer.domain).toBe(name);
    setRecord(answer);
    await reached('one', name, ({ state }) => state === 'active');
    expect((await get(name)).status).toBe(200);
    expect((await detach('one', 'bücher.test')).status).toBe(204);
  });

  it('takes names longer than a common name may be', async () => {
    await activate('one', `${'a-long-label-of-a-name'.repeat(2)}.${'b'.repeat(60)}.test`);
  });

  it('takes the word of a registrar that the operator trusts, and of no other', async () => {
    const refused = await fetch(endpoint('two'), jsonPost({ domain: 'bought.test', registrarToken: 'a guess' }));
    expect(refused.status).toBe(403);
    const answer = await fetch(endpoint('two'), jsonPost({ domain: 'bought.test', registrarToken: REGISTRAR_TOKEN }));
    expect(answer.status).toBe(202);
    expect(((await answer.json()) as DomainView).state).toBe('verified');
    await reached('two', 'bought.test', ({ state }) => state === 'active');
    expect((await get('bought.test')).status).toBe(200);
  });

  it('gives a name that its holder never proved to the tenant that can', async () => {
    expect((await attach('one', 'squatted.test')).status).toBe(202);
    const refused = await attach('two', 'squatted.test');
    expect(refused.status).toBe(409);
    const { detail } = (await refused.json()) as { detail: string };
    const token = /tp-[0-9a-f]{32}/.exec(detail)?.[0] ?? '';
    zone.texts.set('_turnpike.squatted.test', [token]);
    expect((await attach('two', 'squatted.test')).status).toBe(202);
    await reached('two', 'squatted.test', ({ state }) => state === 'active');
    expect((await attach('one', 'squatted.test')).status, 'now it is proved').toBe(409);
  });

  it('never asks for a name without its record, and is not given one for a name that is elsewhere', async () => {
    await attach('one', 'missing.test');
    zone.addresses.set('away.test', ['127.0.0.9']);
    setRecord((await (await attach('two', 'away.test')).json()) as DomainView);
    const away = await reached('two', 'away.test', ({ reason }) => reason?.startsWith('certificate: ') ?? false);
    expect(away.state).toBe('verified');
    expect(away.reason).toMatch(/127\.0\.0\.9|refused|away\.test/);
    expect((await get('away.test')).exit).not.toBe(0);
    expect(authority.output()).toContain('away.test');
    expect(authority.output()).not.toContain('missing.test');
    expect((await view('one', 'missing.test')).state).toBe('pending');
    zone.texts.set('_turnpike.missing.test', ['something else']);
    await reached('one', 'missing.test', ({ reason }) => reason?.includes('another value') ?? false);
    expect((await get('missing.test')).exit).not.toBe(0);
    const plain = await curl(`http://missing.test:${host.port}/`);
    expect(plain.status, 'not served without TLS either').toBe(404);
  });

  it('stops serving a detached name at once, also on a connection that is open', async () => {
    await activate('one', 'leaving.test');
    const session = connectHttp2(`https://leaving.test:${tlsPort}`, {
      ca: await readFile(authority.rootFile, 'utf8'),
      lookup: (_name: string, _options: object, done: (error: null, found: object[]) => void) =>
        done(null, [{ address: '127.0.0.1', family: 4 }]),
    } as never);
    const ask = () =>
      new Promise<number>((resolve, reject) => {
        const stream = session.request({ ':path': '/' });
        stream.on('response', (headers) => resolve(Number(headers[':status'])));
        stream.on('error', reject);
        stream.resume();
        stream.end();
      });
    try {
      expect(await ask()).toBe(200);
      expect((await detach('one', 'leaving.test')).status).toBe(204);
      expect(await ask()).toBe(404);
    } finally {
      session.destroy();
    }
    await until(async () => ((await get('leaving.test')).exit !== 0 ? true : undefined));
    expect((await detach('one', 'leaving.test')).status).toBe(404);
  });

  it('loses nothing while the authority is away, and says why it waits', async () => {
    const root = await readFile(authority.rootFile);
    await authority.stop();
    setRecord((await (await attach('one', 'late.test')).json()) as DomainView);
    const waiting = await reached('one', 'late.test', ({ reason }) => reason !== undefined && /reached/.test(reason));
    expect(waiting).toMatchObject({ state: 'verified', reason: expect.stringContaining('cannot be reached') });
    expect((await get('api.one.test')).status).toBe(200);
    await advance(HOUR);
    expect((await view('one', 'late.test')).state).toBe('verified');
    expect((await view('one', 'api.one.test')).state).toBe('active');
    expect((await get('api.one.test')).status).toBe(200);
    await authority.start();
    await advance(HOUR);
    expect((await reached('one', 'late.test', ({ state }) => state === 'active')).reason).toBeUndefined();
    expect((await get('late.test')).status).toBe(200);
    // The names from before it went end in the root of then.
    await writeFile(path.join(host.data, 'earlier-root.pem'), root);
    expect((await get('api.one.test', { root: path.join(host.data, 'earlier-root.pem') })).status).toBe(200);
  });

  it('keeps certificates and the account over a restart, for its own eyes only, and asks for nothing again', async () => {
    const folder = path.join(host.data, 'certificates');
    const files = await readdir(folder);
    expect(files).toEqual(expect.arrayContaining(['account.key', 'api.one.test.pem', 'host.test.pem']));
    for (const file of files) expect((await stat(path.join(folder, file))).mode & 0o777, file).toBe(0o600);
    const serials = async () =>
      await Promise.all(
        ['api.one.test', 'late.test'].map(async (name) => serial(await readFile(certificateFile(name), 'utf8'))),
      );
    const before = { serials: await serials(), account: await readFile(path.join(folder, 'account.key'), 'utf8') };
    const said = authority.output().length;
    await host.kill();
    host = await host.restart();
    expect((await get('late.test')).status).toBe(200);
    expect(await view('two', 'api.two.test')).toMatchObject({ state: 'active' });
    expect({ serials: await serials(), account: await readFile(path.join(folder, 'account.key'), 'utf8') }).toEqual(
      before,
    );
    expect(authority.output().slice(said)).not.toMatch(/api\.(one|two)\.test|late\.test/);
  });

  it('renews at two thirds of the certificate, and shows the new one at once', async () => {
    const before = serial(await readFile(certificateFile('api.two.test'), 'utf8'));
    await advance((CERTIFICATE_DAYS * DAY * 2) / 3 + HOUR);
    await until(async () =>
      serial(await readFile(certificateFile('api.two.test'), 'utf8')) !== before ? true : undefined,
    );
    // Its root is that of the authority's second life.
    const renewed = await until(async () => {
      const answer = await get('api.two.test');
      return answer.status === 200 ? answer : undefined;
    });
    expect(JSON.parse(renewed.body)).toMatchObject({ text: 'two' });
    expect(await view('two', 'api.two.test')).toMatchObject({ state: 'active' });
  });

  it('takes a name out of service whose record has been missing for a week, and back when it is there', async () => {
    const record = zone.texts.get('_turnpike.api.two.test') ?? [];
    zone.texts.delete('_turnpike.api.two.test');
    await advance(DAY + HOUR);
    await reached('two', 'api.two.test', ({ reason }) => reason?.includes('no TXT record') ?? false);
    expect((await get('api.two.test')).status).toBe(200);
    await advance(7 * DAY);
    const gone = await reached('two', 'api.two.test', ({ state }) => state === 'pending');
    expect(gone.reason).toMatch(/^Out of service/);
    await until(async () => ((await get('api.two.test')).exit !== 0 ? true : undefined));
    expect((await view('two', 'bought.test')).state, 'others stay').toBe('active');
    zone.texts.set('_turnpike.api.two.test', record);
    await advance(HOUR);
    await reached('two', 'api.two.test', ({ state }) => state === 'active');
    expect((await get('api.two.test')).status).toBe(200);
  });
});

function serial(pem: string): string {
  return new X509Certificate(pem.slice(pem.indexOf('-----BEGIN CERTIFICATE'))).serialNumber;
}
