/** The D1 suites in a real handler in a real workerd: on a file, on a libSQL server, and on Miniflare as the reference. */

import { setTimeout as delay } from 'node:timers/promises';
import { Miniflare } from 'miniflare';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { ensureNamespace, removeNamespace } from '../../host/bindings/d1/namespaces.ts';
import { bundleHandler, SqlRig, SqlServer, sqlProgram } from './d1-rig.ts';
import { d1CaseNames } from './support/d1-cases.ts';

const program = await sqlProgram();
const handler = await bundleHandler();
afterAll(() => program.remove());

describe('DB on a file', () => {
  let rig: SqlRig;
  beforeAll(async () => {
    rig = await SqlRig.start(program, {}, handler);
  });
  afterAll(() => rig.stop());

  test.each(d1CaseNames('file'))('%s', async (name) => {
    expect(await rig.runCase(name)).toBe('ok');
  });

  test('no query of the suite ended the engine', () => {
    expect(rig.log).toBe('');
  });
});

test('a query is not late because the clock of the machine was set', async () => {
  // Each signal sets the supervisor's clock ahead by an hour.
  const setsClock = `let ahead = 0; process.on('SIGUSR2', () => { ahead += 3_600_000; });
    const { now } = Date; Date.now = () => now() + ahead;`;
  const preload = `data:text/javascript,${encodeURIComponent(setsClock)}`;
  const rig = await SqlRig.start(program, { timeoutMs: 60_000 }, handler, preload);
  try {
    let answered = false;
    const answer = rig
      .query(
        'WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 3000000) SELECT count(*) AS n FROM n',
      )
      .finally(() => {
        answered = true;
      });
    while (!answered) {
      rig.sql.kill('SIGUSR2');
      await Promise.race([answer, delay(20)]);
    }
    expect(await answer).toEqual([{ n: 3_000_000 }]);
  } finally {
    await rig.stop();
  }
});

describe('DB on a libSQL server', () => {
  let server: SqlServer;
  let rig: SqlRig;
  const admin = () => ({ adminUrl: server.adminUrl, adminToken: '' });
  beforeAll(async () => {
    server = await SqlServer.start();
    await ensureNamespace(admin(), 'tenant1', 100_000_000);
    rig = await SqlRig.start(program, { remote: { url: server.url, token: '', namespace: 'tenant1' } }, handler);
  });
  afterAll(async () => {
    await rig.stop();
    await server.stop();
  });

  test.each(d1CaseNames('server'))('%s', async (name) => {
    expect(await rig.runCase(name)).toBe('ok');
  });

  test('tenants do not see each other, and a removed one is gone', async () => {
    await ensureNamespace(admin(), 'tenant2', 100_000_000);
    const other = await SqlRig.start(
      program,
      { remote: { url: server.url, token: '', namespace: 'tenant2' } },
      handler,
    );
    try {
      await rig.query('CREATE TABLE mine (a)');
      await expect(other.query('SELECT * FROM mine')).rejects.toThrow('no such table: mine');
      await removeNamespace(admin(), 'tenant2');
      await removeNamespace(admin(), 'tenant2');
      await expect(other.query('SELECT 1')).rejects.toThrow('D1_ERROR');
    } finally {
      await other.stop();
    }
  });

  test('the namespace is made where an admin API is given', async () => {
    const remote = { url: server.url, token: '', namespace: 'tenant3', adminUrl: server.adminUrl };
    for (let start = 0; start < 2; start++) {
      const made = await SqlRig.start(program, { remote }, handler);
      try {
        await made.query('CREATE TABLE IF NOT EXISTS mine (a)');
        expect(await made.query('SELECT * FROM mine')).toEqual([]);
      } finally {
        await made.stop();
      }
    }
  });

  test("the server's files stay closed", async () => {
    await expect(rig.query("SELECT readfile('/etc/hostname')")).rejects.toThrow('not authorized');
    await expect(rig.query("SELECT * FROM fsdir('/')")).rejects.toThrow('no such table');
  });

  test('the quota is the error of the API, and nothing is written in part', async () => {
    await ensureNamespace(admin(), 'small', 1_000_000);
    const small = await SqlRig.start(program, { remote: { url: server.url, token: '', namespace: 'small' } }, handler);
    try {
      await small.query('CREATE TABLE t (b)');
      const fill = (): Promise<unknown> =>
        small.query('INSERT INTO t SELECT zeroblob(100000) FROM json_each(?)', ['[1,2,3,4]']);
      const grow = async (): Promise<void> => {
        for (let i = 0; i < 10; i++) await fill();
      };
      await expect(grow()).rejects.toThrow('Exceeded maximum DB size');
      expect((await small.query('SELECT count(*) % 4 AS n FROM t'))[0]).toEqual({ n: 0 });
    } finally {
      await small.stop();
    }
  });

  test('a query beyond the deadline is an error, and the next one works', async () => {
    const quick = await SqlRig.start(
      program,
      { timeoutMs: 2_000, remote: { url: server.url, token: '', namespace: 'tenant1' } },
      handler,
    );
    try {
      const endless = 'WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n';
      await expect(quick.query(endless)).rejects.toThrow('query exceeded the time limit');
      expect(await quick.query('SELECT 1 AS a')).toEqual([{ a: 1 }]);
    } finally {
      await quick.stop();
    }
  });

  test('a server that is away is an error that says so', async () => {
    const away = await SqlRig.start(
      program,
      { remote: { url: 'http://127.0.0.1:1', token: '', namespace: 'x' } },
      handler,
    );
    try {
      await expect(away.query('SELECT 1')).rejects.toThrow('D1_ERROR: D1 DB is unreachable');
    } finally {
      await away.stop();
    }
  });
});

describe('the same expectations on Miniflare', () => {
  let reference: Miniflare;
  let origin: URL;
  beforeAll(async () => {
    reference = new Miniflare({
      modules: true,
      script: handler,
      compatibilityDate: '2026-01-01',
      d1Databases: ['DB'],
    });
    origin = await reference.ready;
  });
  afterAll(() => reference.dispose());

  test.each(d1CaseNames('miniflare'))('%s', async (name) => {
    expect(await (await fetch(new URL(`/case/${encodeURIComponent(name)}`, origin))).text()).toBe('ok');
  });
});
