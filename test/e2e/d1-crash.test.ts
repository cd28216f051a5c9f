/** kill -9 while writes are acknowledged, quotas, and what is left of a database that was not closed. */
import { readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { afterAll, describe, expect, test } from 'vitest';
import { bundleHandler, SqlRig, sqlProgram } from './d1-rig.ts';

const program = await sqlProgram();
const handler = await bundleHandler();
afterAll(() => program.remove());

const WRITES = Number(process.env.CRASH_WRITES ?? 1_000);
const WRITERS = 4;
const KILLS = 6;

describe('kill -9 of the SQL process', () => {
  test.each(['engine', 'supervisor and engine'])('%s: no acknowledged write is lost, none is torn', async (victims) => {
    const rig = await SqlRig.start(program, {}, handler);
    try {
      await rig.query('CREATE TABLE w (id INTEGER PRIMARY KEY, a TEXT, b TEXT)');
      await rig.query('CREATE TABLE ticks (t)');
      const acknowledged = new Set<number>();
      let next = 0;
      let kills = 0;
      let killing: Promise<void> | undefined;
      const kill = async (): Promise<void> => {
        if (victims === 'engine') {
          const engine = rig.processes()[1];
          if (engine !== undefined) process.kill(engine, 'SIGKILL');
          return;
        }
        await rig.killSql();
        await rig.startSql();
      };
      const write = async (): Promise<void> => {
        while (acknowledged.size < WRITES) {
          const ids = Array.from({ length: 20 }, () => next++);
          const response = await fetch(`${rig.origin}/writes`, { method: 'POST', body: JSON.stringify(ids) });
          for (const id of (await response.json()) as number[]) acknowledged.add(id);
          if (kills < KILLS && acknowledged.size > ((kills + 1) * WRITES) / (KILLS + 2) && killing === undefined) {
            kills++;
            killing = kill().finally(() => {
              killing = undefined;
            });
          }
        }
      };
      await Promise.all(Array.from({ length: WRITERS }, write));
      await killing;
      expect(kills).toBe(KILLS);
      await kill();
      // A connection that was idle when its engine was killed is closed: who used it at that moment has to ask again.
      await expect.poll(() => rig.query('SELECT 1 AS a').catch(() => [])).toEqual([{ a: 1 }]);
      const ids = new Set<number>();
      for (let from = 0; from < next; from += 5_000) {
        const rows = await rig.query('SELECT id, a, b FROM w WHERE id >= ? AND id < ?', [from, from + 5_000]);
        for (const row of rows) {
          expect([row.a, row.b]).toEqual([`v${row.id}`, `v${row.id}`]);
          ids.add(row.id);
        }
      }
      const halves = 'SELECT (SELECT count(*) FROM ticks) - (SELECT count(*) FROM w WHERE id % 4 = 0) AS n';
      expect(await rig.query(halves)).toEqual([{ n: 0 }]);
      const lost = [...acknowledged].filter((id) => !ids.has(id));
      expect(lost).toEqual([]);
      expect(await rig.query('PRAGMA quick_check')).toEqual([{ quick_check: 'ok' }]);
    } finally {
      await rig.stop();
    }
  });
});

describe('the quota', () => {
  test('is an error of the API; reading and deleting go on; nothing is written in part', async () => {
    const quotaBytes = 2_000_000;
    const rig = await SqlRig.start(program, { quotaBytes }, handler);
    try {
      await rig.query('CREATE TABLE t (b)');
      const fill = async (): Promise<void> => {
        for (;;) await rig.query('INSERT INTO t SELECT zeroblob(50000) FROM json_each(?)', ['[1,2,3,4,5]']);
      };
      await expect(fill()).rejects.toThrow('D1_ERROR: Exceeded maximum DB size: SQLITE_FULL');
      const [{ n }] = await rig.query('SELECT count(*) AS n FROM t');
      expect(n % 5).toBe(0);
      expect(n).toBeGreaterThan(10);
      expect(statSync(rig.database).size).toBeLessThanOrEqual(quotaBytes);
      await rig.query('DELETE FROM t');
      await rig.query('INSERT INTO t VALUES (zeroblob(50000))');
    } finally {
      await rig.stop();
    }
  });
});

describe('the engine', () => {
  test('ends when nobody asks, and comes back with the next query', async () => {
    const rig = await SqlRig.start(program, { idleMs: 1_000 }, handler);
    const whileItWorks = async (sql: string) => {
      const asked = rig.query(sql);
      await expect.poll(() => rig.processes().length).toBe(2);
      return asked;
    };
    try {
      await whileItWorks('CREATE TABLE t (a)');
      await expect.poll(() => rig.processes().length).toBe(1);
      // What an idle tenant with a DB costs beside its handler.
      expect(privateBytes(rig.sql.pid)).toBeLessThan(15_000_000);
      await whileItWorks('INSERT INTO t VALUES (1)');
      expect(await rig.query('SELECT * FROM t')).toEqual([{ a: 1 }]);
      // An end that was planned is no incident.
      expect(rig.log).toBe('');
    } finally {
      await rig.stop();
    }
  });

  test('that cannot open the file says so for every query, and leaves the file alone', async () => {
    const rig = await SqlRig.start(program, {}, handler);
    try {
      await rig.query('CREATE TABLE t (a)');
      await rig.killSql();
      rmSync(`${rig.database}-wal`, { force: true });
      rmSync(`${rig.database}-shm`, { force: true });
      writeFileSync(rig.database, 'this is no database, and long enough to be read as one: '.repeat(100));
      await rig.startSql();
      await expect(rig.query('SELECT 1')).rejects.toThrow('D1_ERROR: D1 DB could not be started');
      await expect(rig.query('SELECT 1')).rejects.toThrow('D1_ERROR: D1 DB could not be started');
      expect(readFileSync(rig.database, 'utf8')).toContain('this is no database');
    } finally {
      await rig.stop();
    }
  });

  test('ends with its host: a closed standard input ends both processes', async () => {
    const rig = await SqlRig.start(program, {}, handler);
    try {
      await rig.query('SELECT 1');
      const [supervisor = 0, engine = 0] = rig.processes();
      rig.sql.stdin?.end();
      const alive = (pid: number): boolean => {
        try {
          process.kill(pid, 0);
          return true;
        } catch {
          return false;
        }
      };
      await expect.poll(() => [alive(supervisor), alive(engine)]).toEqual([false, false]);
    } finally {
      await rig.stop();
    }
  });
});

function privateBytes(pid: number | undefined): number {
  const text = readFileSync(`/proc/${pid}/smaps_rollup`, 'utf8');
  return [...text.matchAll(/^Private_\w+:\s+(\d+) kB$/gm)].reduce(
    (sum, [, kilobytes]) => sum + Number(kilobytes) * 1024,
    0,
  );
}
