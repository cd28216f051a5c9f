/**
 * Certificates by ACME on two whole nodes, from a real authority (pebble): one node orders, any node is asked for the proof,
 * all serve what comes; whoever orders may be stopped or killed.
 */
import { createHash } from 'node:crypto';
import { writeFile } from 'node:fs/promises';
import path from 'node:path';
import { connect } from 'node:tls';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { postgresClient } from '../../host/registry/postgres/client.ts';
import { AcmeGate } from './support/acme-gate.ts';
import { type Authority, openAuthority, startZone, type Zone } from './support/authority.ts';
import { deploy, jsonPost, x402Fetch } from './support/callers.ts';
import { Cluster, clusterPrograms } from './support/cluster.ts';
import { curl } from './support/curl.ts';
import type { TestHost } from './support/host.ts';
import { freePort } from './support/ports.ts';
import { available } from './support/programs.ts';
import { turnpike } from './support/turnpike-command.ts';
import { until } from './support/until.ts';

const REGISTRAR_TOKEN = 'registrar-of-the-test';
const DAYS = 60;
const RENEWED_MS = ((DAYS * 2) / 3 + 1) * 86_400_000;
const NEW_KEY = 'another key of thirty-two characters, or more';

describe.skipIf(!clusterPrograms() || !available('pebble', 'openssl', 'curl'))('certificates of two nodes', () => {
  let cluster: Cluster;
  let zone: Zone;
  let authority: Authority;
  let gate: AcmeGate;
  let a: TestHost;
  let b: TestHost;
  const tlsPorts = new Map<string, number>();

  beforeAll(async () => {
    [cluster, zone] = await Promise.all([Cluster.start(), startZone()]);
    gate = await AcmeGate.open();
    authority = await openAuthority({ ...gate.validation, zone, validityDays: DAYS });
    await authority.start();
    gate.authority = new URL(authority.directory);
    // The first orders.
    a = await node('a', { 'tls-acme-challenge': 'http-01' });
  });
  afterAll(async () => {
    await cluster?.stop();
    await authority?.close();
    await gate?.close();
    zone?.stop();
  });

  async function node(
    name: string,
    flags: Record<string, string>,
    env: Record<string, string> = {},
  ): Promise<TestHost> {
    const tlsPort = tlsPorts.get(name) ?? (await freePort());
    tlsPorts.set(name, tlsPort);
    const common = {
      'tls-mode': 'acme',
      'tls-port': String(tlsPort),
      'tls-acme-directory': gate.directory,
      'tls-acme-ca-file': gate.caFile,
      'domains-resolver': zone.address,
      'domains-registrar-tokens': JSON.stringify([createHash('sha256').update(REGISTRAR_TOKEN).digest('hex')]),
      'slugs-term-days': '400',
    };
    return await cluster.node(name, { ...common, ...flags }, env);
  }

  const nameOf = (host: TestHost) => path.basename(host.data);
  const tlsPort = (host: TestHost) => tlsPorts.get(nameOf(host)) ?? 0;
  /** The authority finds all names there. */
  const asked = (host: TestHost) => gate.validateAt(host.port, tlsPort(host));
  const attach = (host: TestHost, slug: string, domain: string) =>
    fetch(`${host.url}/_admin/${slug}/domains`, jsonPost({ domain, registrarToken: REGISTRAR_TOKEN }));

  async function rows(sql: string) {
    const client = postgresClient(cluster.database);
    try {
      return (await client.execute(sql)).rows;
    } finally {
      await client.end();
    }
  }
  async function isActive(domain: string): Promise<void> {
    const state = async () => (await rows(`SELECT state, reason FROM domains WHERE domain = '${domain}'`))[0];
    await expect.poll(state, { interval: 100 }).toEqual({ state: 'active', reason: null });
  }
  const orders = (domain: string) => gate.orders.filter((name) => name === domain).length;

  /** Of the certificate that a node shows; '': none. */
  function serial(host: TestHost, servername: string): Promise<string> {
    return new Promise((resolve) => {
      const socket = connect({ port: tlsPort(host), host: '127.0.0.1', servername, rejectUnauthorized: false }, () => {
        resolve(socket.getPeerCertificate().serialNumber);
        socket.destroy();
      });
      socket.on('error', () => resolve(''));
    });
  }
  async function expectServed(domain: string, ...hosts: TestHost[]): Promise<void> {
    const serials = await Promise.all(hosts.map((host) => serial(host, domain)));
    expect(serials).toEqual(hosts.map(() => expect.stringMatching(/^[0-9A-F]+$/)));
    expect(new Set(serials).size).toBe(1);
    for (const host of hosts) {
      const answer = await curl(`https://${domain}:${tlsPort(host)}/`, { root: authority.rootFile });
      expect(answer).toMatchObject({ exit: 0, status: 200, body: domain });
    }
  }

  it('one orders what is attached at the other; any node has the proof, and both serve at once', async () => {
    const code = 'export default { fetch: (request) => new Response(new URL(request.url).hostname) }';
    const payer = x402Fetch(
      cluster.network,
      0,
      cluster.via(() => a),
    );
    const deploys = async () => {
      for (const slug of ['one', 'two']) await deploy(payer, cluster.url, { slug, code });
    };
    [b] = await Promise.all([node('b', { 'tls-acme-challenge': 'tls-alpn-01' }), deploys()]);
    asked(b);
    const held = gate.hold('/chalZ/', 'before');
    expect((await attach(b, 'one', 'first.test')).status).toBe(202);
    await held.reached;
    const [proof] = await rows(`SELECT name FROM certificates WHERE name LIKE 'http-01/%'`);
    const token = String(proof?.name).slice('http-01/'.length);
    const shown = await Promise.all(
      [a, b].map((host) => curl(`http://first.test:${host.port}/.well-known/acme-challenge/${token}`)),
    );
    for (const { status, body } of shown) expect([status, body]).toEqual([200, shown[0]?.body]);
    expect(shown[0]?.body).toMatch(new RegExp(`^${token}\\.`));
    held.release();
    await isActive('first.test');
    await expectServed('first.test', a, b);
    expect(orders('first.test')).toBe(1);
    const kept = await rows('SELECT name, sealed FROM certificates');
    expect(kept.map(({ name }) => name).toSorted()).toEqual(['account.key', 'first.test.pem']);
    for (const { sealed } of kept)
      expect(Buffer.from(sealed as ArrayBuffer).toString('latin1')).not.toMatch(/BEGIN|KEY/);
    for (const host of [a, b])
      expect((await host.operator('GET', '/certificates')).json).toMatchObject({
        certificates: [{ names: ['first.test'], reason: null }],
      });
  });

  it('a name that two slugs claim at both nodes at once is one’s; its orderer stops, the other goes on, and then both do', async () => {
    const held = gate.hold('/chalZ/', 'after');
    const answers = await Promise.all([attach(a, 'one', 'second.test'), attach(b, 'two', 'second.test')]);
    expect(answers.map(({ status }) => status).toSorted()).toEqual([202, 409]);
    await held.reached;
    process.kill(a.pid, 'SIGSTOP');
    try {
      await isActive('second.test');
      await expectServed('second.test', b);
    } finally {
      process.kill(a.pid, 'SIGCONT');
    }
    const shown = await serial(b, 'second.test');
    held.release();
    await expect.poll(() => serial(a, 'second.test')).toBe(shown);
    await until(async () => (await fetch(`${a.url}/healthz`)).status === 200);
    await expectServed('second.test', a, b);
    expect(await serial(b, 'second.test')).toBe(shown);
    expect(orders('second.test')).toBe(1);
  });

  it('with another cluster.key all is there, for a node with the new one and one with the old', async () => {
    const file = path.join(a.data, 'new.key');
    await writeFile(file, NEW_KEY);
    const how = { cwd: a.data, env: cluster.environment };
    const { code, stderr } = await turnpike(['cluster', 'rotate-key', '--new-key-file', file], how);
    expect(code, stderr).toBe(0);
    await a.kill();
    a = await node('a', { port: String(a.port), 'tls-acme-challenge': 'http-01' }, { TURNPIKE_CLUSTER_KEY: NEW_KEY });
    await expectServed('first.test', a, b);
    await expectServed('second.test', a, b);
  });

  it('a certificate that its orderer was given, and did not hear of, is the other’s, and not ordered again', async () => {
    // TLS-ALPN-01, answered by the node that did not order.
    asked(a);
    const held = gate.hold('/finalize-order/', 'after');
    expect((await attach(a, 'two', 'third.test')).status).toBe(202);
    await held.reached;
    await b.kill();
    held.release();
    const finalized = gate.finalized;
    await isActive('third.test');
    await expectServed('third.test', a);
    expect([orders('third.test'), gate.finalized]).toEqual([1, finalized]);
  });

  it('renews each once', async () => {
    const names = ['first.test', 'second.test', 'third.test'];
    const before = await Promise.all(names.map((name) => serial(a, name)));
    await a.advance(RENEWED_MS);
    await until(async () => {
      const now = await Promise.all(names.map((name) => serial(a, name)));
      return now.every((one, at) => one !== '' && one !== before[at]);
    });
    expect(names.map(orders)).toEqual([2, 2, 2]);
  });
});
