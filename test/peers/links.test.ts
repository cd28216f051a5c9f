/** Connections between nodes: who may open one, who is cut off, and what strangers get. */
import { once } from 'node:events';
import { connect as connectPlainly } from 'node:net';
import type { Duplex } from 'node:stream';
import { connect } from 'node:tls';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { type CertifiedKey, certifyNode, createAuthority, type PeerIdentity } from '../../host/peers/authority.ts';
import { PeerLinks, type PeerLinksOptions } from '../../host/peers/links.ts';

describe('links between nodes', () => {
  let authority: CertifiedKey;
  let strangers: CertifiedKey;
  const nodes = new Map<number, CertifiedKey & PeerIdentity>();
  const links = new Map<number, PeerLinks>();
  const ports = new Map<number, number>();
  const revoked = new Set<string>();
  const taken: { purpose: string; from: number }[] = [];

  beforeAll(async () => {
    [authority, strangers] = await Promise.all([createAuthority(), createAuthority()]);
    nodes.set(4, await certifyNode(authority, 4));
    for (const node of [1, 2, 3]) {
      const own = await certifyNode(authority, node);
      nodes.set(node, own);
      const link = linkOf(own, authority);
      links.set(node, link);
      ports.set(node, await link.listen('127.0.0.1', 0));
    }
  });
  afterAll(async () => {
    for (const link of links.values()) await link.close();
  });

  function linkOf(own: CertifiedKey, trusted: CertifiedKey, most?: PeerLinksOptions['most']): PeerLinks {
    return new PeerLinks({
      ...(most && { most }),
      authority: trusted.certificate,
      own,
      admits: ({ fingerprint }) => !revoked.has(fingerprint),
      addressOf: (node) => ({ host: '127.0.0.1', port: ports.get(node) ?? 0 }),
      onConnection: (purpose, stream, from) => {
        taken.push({ purpose, from });
        stream.pipe(stream);
      },
    });
  }

  function tlsOf({ certificate, key }: CertifiedKey) {
    return { cert: certificate, key, checkServerIdentity: () => undefined };
  }

  /** What comes back of what was said, or the error. */
  async function echo(stream: Duplex, text: string): Promise<string> {
    stream.end(text);
    let answer = '';
    try {
      for await (const part of stream) answer += part;
    } catch (error) {
      return (error as Error).message;
    }
    return answer;
  }
  const dial = (from: number, to: number, purpose = 'echo') => links.get(from)?.dial(to, purpose) as Duplex;

  test('both sides know who the other is, and all bytes arrive', async () => {
    const large = 'x'.repeat(3_000_000);
    expect(await echo(dial(1, 2, '{"a":1}'), large)).toBe(large);
    expect(taken.at(-1)).toEqual({ purpose: '{"a":1}', from: 1 });
  });

  test('an error comes where nobody is', async () => {
    expect(await echo(dial(1, 9), 'x')).toMatch(/ECONNREFUSED|EADDRNOTAVAIL/);
    // Another node says where it is.
    ports.set(9, 70_000);
    expect(await echo(dial(1, 9), 'x')).toMatch(/ECONNREFUSED|EADDRNOTAVAIL/);
  });

  test('a node is not taken for another', async () => {
    const port = ports.get(2) ?? 0;
    ports.set(2, ports.get(3) ?? 0);
    try {
      expect(await echo(dial(1, 2), 'x')).toBe('that is not node 2');
    } finally {
      ports.set(2, port);
    }
  });

  test('a certificate of another authority opens nothing, and is not trusted', async () => {
    const before = taken.length;
    const stranger = await certifyNode(strangers, 1);
    const outside = linkOf(stranger, strangers);
    expect(await echo(outside.dial(2, 'echo'), 'x')).not.toBe('x');
    const trusting = linkOf(stranger, authority);
    expect(await echo(trusting.dial(2, 'echo'), 'x')).not.toBe('x');
    const anonymous = connect({ port: ports.get(2) ?? 0, host: '127.0.0.1', rejectUnauthorized: false });
    expect(await echo(anonymous, 'echo\nx')).not.toBe('x');
    expect(taken).toHaveLength(before);
  });

  test('who is revoked is cut off, and comes back with a new certificate', async () => {
    const open = dial(3, 1);
    open.write('x');
    await once(open, 'data');
    const closed = once(open, 'close');
    open.on('error', () => undefined);
    revoked.add(nodes.get(3)?.fingerprint ?? '');
    links.get(1)?.review();
    await closed;
    expect(await echo(dial(3, 1), 'x')).not.toBe('x');
    expect(await echo(dial(1, 3), 'x')).toBe('that is not node 3');
    const again = linkOf(await certifyNode(authority, 3), authority);
    expect(await echo(again.dial(1, 'echo'), 'x')).toBe('x');
  });

  describe('many connections', () => {
    let full: PeerLinks;
    let port: number;
    const sockets: Duplex[] = [];

    beforeAll(async () => {
      full = linkOf(nodes.get(1) as CertifiedKey, authority, { strangers: 20, nodes: 20 });
      port = await full.listen('127.0.0.1', 0);
      ports.set(4, port);
    });
    afterAll(async () => {
      for (const socket of sockets) socket.destroy();
      await full.close();
    });
    /** As `dial`, of the node that has few places. */
    const dialFull = (from: number) => {
      const own = nodes.get(from) as CertifiedKey;
      const socket = connect({ port, host: '127.0.0.1', ca: authority.certificate, ...tlsOf(own) });
      socket.write('echo\n');
      sockets.push(socket.on('error', () => undefined));
      return socket;
    };

    test('of strangers who say nothing leave the nodes theirs', async () => {
      const silent = Array.from({ length: 60 }, () => {
        const socket = connectPlainly({ port, host: '127.0.0.1', localAddress: '127.0.0.2' });
        sockets.push(socket.on('error', () => undefined).resume());
        return socket;
      });
      await Promise.all(silent.map((socket) => once(socket, 'connect')));
      expect(await echo(dialFull(2), 'x')).toBe('x');
      await expect.poll(() => silent.filter((socket) => !socket.closed).length).toBeLessThanOrEqual(20);
    });

    test('of one node leave the others theirs', async () => {
      const greedy = Array.from({ length: 30 }, () => dialFull(2));
      const open = () => greedy.filter((socket) => !socket.closed).length;
      await Promise.all(greedy.map((socket) => Promise.race([once(socket, 'session'), once(socket, 'close')])));
      await expect.poll(open).toBe(20);
      for (let at = 0; at < 3; at++) {
        const one = dialFull(4);
        one.write('x');
        await once(one, 'data');
      }
      await expect.poll(open).toBe(17);
    });
  });

  test('strangers are cut off: no TLS, no purpose, a purpose without end', async () => {
    const plain = connectPlainly(ports.get(1) ?? 0, '127.0.0.1');
    plain.on('error', () => undefined).resume();
    plain.write('GET / HTTP/1.1\r\n\r\n');
    await once(plain, 'close');
    const endless = dial(2, 1, 'x'.repeat(10_000));
    endless.on('error', () => undefined);
    endless.resume();
    await once(endless, 'close');
    expect(taken.some(({ purpose }) => purpose.length > 512)).toBe(false);
    expect(await echo(dial(2, 1), 'still here')).toBe('still here');
  });
});
