/** Certificates of nodes on one PostgreSQL: one orders, all have what comes, and who is no longer the one changes nothing. */
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import pino from 'pino';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { AuthorityError } from '../../host/certificates/authority.ts';
import { ChallengeBoard } from '../../host/certificates/challenge-board.ts';
import { CertificateRenewer } from '../../host/certificates/renewer.ts';
import { keyFilesOfNodes } from '../../host/registry/key-file.ts';
import { openPostgresRegistry, type PostgresRegistry } from '../../host/registry/postgres/index.ts';
import { AdjustableClock } from '../../host/shared/clock.ts';
import { SharedCertificates } from '../../host/supervisor/shared-certificates.ts';
import { postgresPrograms } from '../e2e/support/databases.ts';
import { PostgresServer } from '../registry/support/postgres-server.ts';

const KEY = 'k'.repeat(32);
const LEASE_MS = 1_500;

interface Node {
  registry: PostgresRegistry;
  shared: SharedCertificates;
  renewer: CertificateRenewer;
  board: ChallengeBoard;
  folder: string;
  /** Names whose certificates changed, and names of TLS proofs, as its edges were told. */
  told: string[];
  /** Names that it asked the authority for. */
  asked: string[];
}

describe.skipIf(!postgresPrograms())('certificates of several nodes', () => {
  let server: PostgresServer;
  let root: string;
  let url: string;
  let wanted: string[];
  /** The authority, as one node calls it. */
  let issue: (node: Node, name: string) => Promise<string>;
  const nodes: Node[] = [];
  const clock = new AdjustableClock();

  beforeAll(async () => {
    server = await PostgresServer.start();
  });
  afterAll(() => server?.stop());
  beforeEach(() => {
    root = mkdtempSync(path.join(tmpdir(), 'tp-certificates-'));
    url = server.create(path.basename(root).replaceAll('-', '_').toLowerCase());
    wanted = [];
    issue = async (_node, name) => selfSigned(name);
  });
  afterEach(async () => {
    for (const node of nodes.splice(0)) {
      await node.renewer.stop();
      await node.registry.end();
    }
    rmSync(root, { recursive: true });
  });

  async function join(): Promise<Node> {
    const folder = mkdtempSync(path.join(root, 'node-'));
    const registry = await openPostgresRegistry(url, { leaseMs: LEASE_MS });
    const [board, told] = [new ChallengeBoard(), [] as string[]];
    const shared = await SharedCertificates.open({
      registry,
      keyFiles: await keyFilesOfNodes(registry, KEY, folder),
      folder,
      board,
      edges: {
        certificateChanged: async ({ name }) => told.push(name),
        setTlsChallenge: async ({ name, pem }) => told.push(`${pem === undefined ? 'no' : 'a'} proof of ${name}`),
      },
    });
    const node = { registry, shared, board, folder, told, asked: [] } as unknown as Node;
    node.renewer = new CertificateRenewer({
      ...{ store: shared.store, turn: shared.turn, changed: shared.changed },
      clock,
      log: pino({ level: 'silent' }),
      wanted: async () => wanted,
      outcome: async () => {},
      authority: {
        issue(name) {
          node.asked.push(name);
          return issue(node, name);
        },
      },
    });
    await shared.start(node.renewer);
    nodes.push(node);
    return node;
  }

  async function want(...names: string[]): Promise<void> {
    wanted = names;
    for (const { renewer } of nodes) renewer.wake();
    for (const { renewer } of nodes) await renewer.settled();
  }

  test('one orders, and all show it before that is told; names that go, go everywhere', async () => {
    const [a, b] = [await join(), await join()];
    await want('one.test', '*.two.test');
    expect([a.asked.toSorted(), b.asked]).toEqual([['*.two.test', 'one.test'], []]);
    for (const { folder, told, renewer } of [a, b]) {
      expect(readdirSync(folder).toSorted()).toEqual(['_wildcard.two.test.pem', 'one.test.pem']);
      expect(told).toEqual(expect.arrayContaining(['one.test', '*.two.test']));
      expect(renewer.has('*.two.test')).toBe(true);
    }
    expect(readFileSync(path.join(b.folder, 'one.test.pem'))).toEqual(
      readFileSync(path.join(a.folder, 'one.test.pem')),
    );
    const c = await join();
    expect(c.renewer.has('one.test')).toBe(true);
    expect(readdirSync(c.folder)).toContain('one.test.pem');
    await want('*.two.test');
    for (const { folder, renewer } of [a, b, c]) {
      expect(readdirSync(folder)).toEqual(['_wildcard.two.test.pem']);
      expect(renewer.has('one.test')).toBe(false);
    }
  });

  test('each node has the proofs before the authority is told to look, and none afterwards', async () => {
    const [a, b] = [await join(), await join()];
    const seen: (string | undefined)[] = [];
    issue = async ({ shared }, name) => {
      await shared.proofs.http(name, 'token', 'token.print');
      await shared.proofs.tls(name, 'PEM');
      seen.push(a.board.proof('token'), b.board.proof('token'), b.told.at(-1));
      // One that is left behind goes with the end of the round.
      await shared.proofs.tls(name, undefined);
      return selfSigned(name);
    };
    await want('one.test');
    expect(seen).toEqual(['token.print', 'token.print', 'a proof of one.test']);
    await expect.poll(() => b.board.proof('token')).toBeUndefined();
    expect(b.told).toContain('no proof of one.test');
  });

  test('who orders no longer changes nothing: neither certificate, proof, failure nor what is gone', async () => {
    const [a, b] = [await join(), await join()];
    const [began, go] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
    const [first, second] = [selfSigned('one.test'), selfSigned('one.test')];
    /** Of the proof and the certificate, once the one before has given up. */
    const left: (string | undefined)[] = [];
    issue = async (node, name) => {
      await node.shared.proofs.http(name, 'token', 'token.print');
      if (node === b) {
        go.resolve();
        await a.renewer.settled();
        left.push(b.board.proof('token'), await b.shared.store.read('one.test.pem'));
        return second;
      }
      began.resolve();
      await go.promise;
      await node.shared.proofs.http(name, 'token', undefined).catch(() => undefined);
      return first;
    };
    const wanting = want('one.test');
    await began.promise;
    await a.registry.leases.leave(true);
    await wanting;
    await expect.poll(() => b.renewer.has('one.test')).toBe(true);
    await b.renewer.settled();
    expect([a.asked, b.asked]).toEqual([['one.test'], ['one.test']]);
    expect(left).toEqual(['token.print', undefined]);
    for (const { folder, renewer } of [a, b]) {
      await expect.poll(() => readFileSync(path.join(folder, 'one.test.pem'), 'utf8')).toBe(second);
      expect(renewer.status('one.test')).toMatchObject({ failures: 0 });
    }
  });

  test('a failure is known to who goes on: no node knocks again at once', async () => {
    const [a, b] = [await join(), await join()];
    issue = async () => {
      throw new AuthorityError('slow down', 3_600_000);
    };
    await want('one.test');
    await expect.poll(() => b.renewer.status('one.test')).toMatchObject({ failures: 1, reason: 'slow down' });
    await a.renewer.stop();
    await a.registry.end();
    nodes.shift();
    await expect.poll(() => b.registry.leases.run('certificates', async () => true)).toBe(true);
    await want('one.test', 'two.test');
    expect(b.asked).toEqual(['two.test']);
  });
});

/** A real certificate, and its key before it. */
function selfSigned(name: string): string {
  const curve = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-days', '90'];
  const args = ['req', '-x509', ...curve, '-subj', `/CN=${name}`, '-keyout', '-', '-out', '-'];
  return execFileSync('openssl', args, { stdio: ['ignore', 'pipe', 'ignore'] }).toString();
}
