/** A base domain with a wildcard certificate: obtained by DNS-01 with the operator's command, on the real host. */
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type Authority, openAuthority, startZone, type Zone } from './support/authority.ts';
import { deploy, mppFetch } from './support/callers.ts';
import { curl } from './support/curl.ts';
import { startHost, type TestHost } from './support/host.ts';
import { freePort } from './support/ports.ts';
import { available } from './support/programs.ts';
import { until } from './support/until.ts';

const HOUR = 3_600_000;
const CODE = `export default { fetch: (request) => new Response(request.url) }`;

describe.skipIf(!available('pebble', 'curl', 'openssl'))('a wildcard certificate by tls.acme.dnsHook', () => {
  let folder: string;
  let zone: Zone;
  let provider: Server;
  let authority: Authority;
  let host: TestHost;
  let tlsPort: number;
  /** What the command was called with. */
  const calls: string[][] = [];
  let refusing = true;

  beforeAll(async () => {
    folder = await mkdtemp(path.join(tmpdir(), 'wildcard-'));
    zone = await startZone();
    // Stands for the API of a DNS provider, which the operator's command talks to.
    provider = createServer((request, response) => {
      const [action = '', name = '', value = ''] = (request.url ?? '').slice(1).split('/').map(decodeURIComponent);
      calls.push([action, name, value]);
      if (refusing) {
        response.writeHead(503).end();
        return;
      }
      const others = (zone.texts.get(name) ?? []).filter((text) => text !== value);
      zone.texts.set(name, action === 'set' ? [...others, value] : others);
      response.end();
    });
    await new Promise<void>((resolve) => provider.listen(0, '127.0.0.1', resolve));
    const { port } = provider.address() as AddressInfo;
    const hook = path.join(folder, 'hook.mjs');
    await writeFile(
      hook,
      `const path = process.argv.slice(2).map(encodeURIComponent).join('/');
       const { ok } = await fetch('http://127.0.0.1:${port}/' + path);
       if (!ok) { console.error('the provider is closed'); process.exit(1); }`,
    );
    const httpPort = await freePort();
    tlsPort = await freePort();
    authority = await openAuthority({ httpPort, tlsPort, zone });
    await authority.start();
    host = await startHost({
      flags: {
        port: String(httpPort),
        'base-domain': 'tenants.test',
        'tls-mode': 'acme',
        'tls-port': String(tlsPort),
        'tls-acme-directory': authority.directory,
        'tls-acme-ca-file': authority.caFile,
        'tls-acme-dns-hook': `${process.execPath} ${hook}`,
      },
    });
    await deploy(mppFetch(host.network, 0), host.url, { slug: 'one', code: CODE });
  });
  afterAll(async () => {
    await host?.stop();
    await authority?.close();
    zone?.stop();
    await new Promise((resolve) => provider?.close(resolve));
    await rm(folder, { recursive: true, force: true });
  });

  it('is tried again where the command fails, and the log says what the command said', async () => {
    await until(() => (host.output().includes('tls.acme.dnsHook failed: the provider is closed') ? true : undefined));
    expect((await curl(`https://one.tenants.test:${tlsPort}/`)).exit).not.toBe(0);
    refusing = false;
    calls.length = 0;
    await host.advance(HOUR);
    await until(() => (host.output().includes('certificate obtained') ? true : undefined));
    const [set, clear] = calls;
    expect(set).toEqual(['set', '_acme-challenge.tenants.test', expect.stringMatching(/^[\w-]{43}$/)]);
    expect(clear).toEqual(['clear', '_acme-challenge.tenants.test', set?.[2]]);
    expect(zone.texts.get('_acme-challenge.tenants.test')).toEqual([]);
  });

  it.each(['1.1', '2'] as const)('serves every tenant below the base domain by HTTP/%s', async (version) => {
    const answer = await curl(`https://one.tenants.test:${tlsPort}/a?b`, { root: authority.rootFile, version });
    expect(answer).toMatchObject({ exit: 0, status: 200, version, body: `https://one.tenants.test:${tlsPort}/a?b` });
    const nobody = await curl(`https://nobody.tenants.test:${tlsPort}/`, { root: authority.rootFile, version });
    expect(nobody).toMatchObject({ exit: 0, status: 404 });
    const deeper = await curl(`https://x.one.tenants.test:${tlsPort}/`, { root: authority.rootFile, version });
    expect(deeper.exit, 'a wildcard stands for one label').not.toBe(0);
  });

  it('sends plain requests below the base domain to HTTPS', async () => {
    const plain = await curl(`http://one.tenants.test:${host.port}/a?b`);
    expect(plain.status).toBe(308);
    expect(plain.headers.get('location')?.trim()).toBe(`https://one.tenants.test:${tlsPort}/a?b`);
  });
});
