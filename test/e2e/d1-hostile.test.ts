/**
 * Hostile SQL through a real handler: every attempt is refused or ends nothing but its own database process; the next
 * query of the same tenant works at once, its data is whole, and another tenant hardly notices.
 */
import { spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { expectTime } from '../times.ts';
import { bundleHandler, SqlRig, sqlProgram } from './d1-rig.ts';

const TIMEOUT_MS = 400;
const QUOTA = 20_000_000;
/** Outside of the tenant's folder: nothing may read it, nothing may appear in it. */
const outside = mkdtempSync(join(tmpdir(), 'd1-outside-'));
const secret = join(outside, 'secret.txt');
const SECRET = 'the-secret-of-another';

const program = await sqlProgram();
const handler = await bundleHandler();
let attacker: SqlRig;
let neighbour: SqlRig;

beforeAll(async () => {
  writeFileSync(secret, SECRET);
  const limits = { timeoutMs: TIMEOUT_MS, quotaBytes: QUOTA, heapBytes: 50_000_000, maxResultBytes: 4_000_000 };
  attacker = await SqlRig.start(program, limits, handler);
  neighbour = await SqlRig.start(program, {}, handler);
  await attacker.query('CREATE TABLE t (a INTEGER PRIMARY KEY, b TEXT)');
  await attacker.query("INSERT INTO t VALUES (1, 'mine')");
  await attacker.query('CREATE TABLE victim (a)');
  await neighbour.query('CREATE TABLE load (k INTEGER PRIMARY KEY, v TEXT)');
  await neighbour.query("INSERT INTO load SELECT value, 'x' FROM json_each(?)", [
    JSON.stringify(Array.from({ length: 1000 }, (_, index) => index)),
  ]);
});
afterAll(async () => {
  await attacker.stop();
  await neighbour.stop();
  program.remove();
  rmSync(outside, { recursive: true });
});

const file = (): string => secret;
const endless = 'WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)';

/** Refused before they run. */
const REFUSED: Record<string, () => string> = {
  readfile: () => `SELECT readfile('${file()}')`,
  'readfile, upper case': () => `SELECT READFILE('${file()}')`,
  'readfile in double quotes': () => `SELECT "readfile"('${file()}')`,
  'readfile in brackets': () => `SELECT [readfile]('${file()}')`,
  'readfile in backticks': () => `SELECT \`readfile\`('${file()}')`,
  'readfile behind a comment': () => `SELECT readfile/**/('${file()}')`,
  'readfile behind a line comment': () => `SELECT readfile--\n('${file()}')`,
  'readfile behind a byte order mark': () => `SELECT \ufeffreadfile('${file()}')`,
  'readfile behind a Tcl variable': () => `SELECT $x('), readfile('${file()}') --'`,
  'readfile as a table': () => `SELECT * FROM readfile('${file()}')`,
  'readfile in a subquery': () => `SELECT (SELECT readfile('${file()}'))`,
  'readfile in WHERE': () => `SELECT 1 WHERE readfile('${file()}') IS NOT NULL`,
  'readfile in a CTE': () => `WITH x AS (SELECT readfile('${file()}') AS c) SELECT c FROM x`,
  'readfile as a second statement': () => `SELECT 1; SELECT readfile('${file()}')`,
  'readfile in EXPLAIN': () => `EXPLAIN SELECT readfile('${file()}')`,
  'readfile in a view': () => `CREATE VIEW v AS SELECT readfile('${file()}') AS c`,
  'readfile in a trigger': () => `CREATE TRIGGER g AFTER INSERT ON victim BEGIN SELECT readfile('${file()}'); END`,
  'readfile in WHEN of a trigger': () =>
    `CREATE TRIGGER g AFTER INSERT ON victim WHEN readfile('${file()}') BEGIN SELECT 1; END`,
  'readfile as a default': () => `CREATE TABLE d (a DEFAULT (readfile('${file()}')))`,
  'readfile as a check': () => `CREATE TABLE d (a CHECK (readfile('${file()}') IS NULL))`,
  'readfile as a generated column': () => `CREATE TABLE d (a, b AS (readfile('${file()}')))`,
  'readfile in an index': () => `CREATE INDEX d ON t (readfile('${file()}'))`,
  'readfile in RETURNING': () => `INSERT INTO victim VALUES (1) RETURNING readfile('${file()}')`,
  'readfile in UPSERT': () => `INSERT INTO t VALUES (1, 2) ON CONFLICT DO UPDATE SET b = readfile('${file()}')`,
  writefile: () => `SELECT writefile('${join(outside, 'written')}', 'x')`,
  'writefile in a trigger': () =>
    `CREATE TRIGGER g AFTER INSERT ON victim BEGIN SELECT writefile('${join(outside, 'written')}', 'x'); END`,
  fsdir: () => `SELECT * FROM fsdir('${outside}')`,
  'fsdir as a string': () => `SELECT * FROM 'fsdir'('${outside}')`,
  'fsdir without arguments': () => `SELECT * FROM fsdir WHERE path = '${outside}'`,
  'fsdir qualified': () => `SELECT * FROM main."fsdir" WHERE path = '${outside}'`,
  'fsdir in a list': () => `SELECT * FROM t, 'fsdir' WHERE path = '${outside}'`,
  'fsdir behind IN': () => "SELECT 1 IN 'fsdir'",
  'fsdir as content of an fts5 table': () => "CREATE VIRTUAL TABLE f USING fts5(name, content='fsdir')",
  lsmode: () => 'SELECT lsmode(33188)',
  load_extension: () => "SELECT load_extension('libz.so')",
  fts3_tokenizer: () => "SELECT fts3_tokenizer('simple')",
  sha3_query: () => `SELECT sha3_query('SELECT readfile(''${file()}'')')`,
  'sqlite_dbpage read': () => 'SELECT data FROM sqlite_dbpage',
  'sqlite_dbpage write': () => "UPDATE sqlite_dbpage SET data = x'00' WHERE pgno = 1",
  sqlite_stmt: () => 'SELECT * FROM sqlite_stmt',
  dbstat: () => 'SELECT * FROM dbstat',
  'ATTACH a file': () => `ATTACH '${join(outside, 'other.db')}' AS o`,
  'ATTACH behind a comment': () => `/* */ ATTACH '${join(outside, 'other.db')}' AS o`,
  'ATTACH as a second statement': () => `SELECT 1; ATTACH '${join(outside, 'other.db')}' AS o`,
  'ATTACH behind a trigger': () =>
    `CREATE TRIGGER g AFTER INSERT ON victim BEGIN SELECT 1; END; ATTACH '${join(outside, 'other.db')}' AS o`,
  'VACUUM INTO': () => `VACUUM INTO '${join(outside, 'copy.db')}'`,
  VACUUM: () => 'VACUUM',
  writable_schema: () => 'PRAGMA writable_schema = ON',
  sqlite_schema: () => "UPDATE sqlite_schema SET sql = 'x'",
  journal_mode: () => 'PRAGMA journal_mode = OFF',
  'journal_mode, qualified and quoted': () => 'PRAGMA main."journal_mode" = DELETE',
  synchronous: () => 'PRAGMA synchronous = OFF',
  max_page_count: () => 'PRAGMA max_page_count = 4294967294',
  hard_heap_limit: () => 'PRAGMA hard_heap_limit = 0',
  trusted_schema: () => 'PRAGMA trusted_schema = ON',
  temp_store_directory: () => `PRAGMA temp_store_directory = '${outside}'`,
  mmap_size: () => 'PRAGMA mmap_size = 10000000000',
  wal_autocheckpoint: () => 'PRAGMA wal_autocheckpoint = 0',
  application_id: () => 'PRAGMA application_id = 1',
  'pragma as a table': () => "SELECT * FROM pragma_journal_mode('off')",
  'database_list as a table': () => 'SELECT * FROM pragma_database_list',
  'a csv table': () => `CREATE VIRTUAL TABLE c USING csv(filename='${file()}')`,
  'a dbpage table': () => 'CREATE VIRTUAL TABLE c USING sqlite_dbpage',
  'a temporary table': () => 'CREATE TEMP TABLE c (a)',
  'a transaction that stays open': () => 'BEGIN EXCLUSIVE',
  'a savepoint': () => 'SAVEPOINT s',
  'a WASM function': () => "CREATE FUNCTION f LANGUAGE wasm AS 'x'",
  'a statement of 10 MB': () => `SELECT '${'x'.repeat(10_000_000)}'`,
  'NUL in the text': () => "SELECT 1\0; ATTACH 'x' AS y",
  'deep parentheses': () => `SELECT ${'('.repeat(20_000)}1${')'.repeat(20_000)}`,
  'a thousand joins': () => `SELECT count(*) FROM ${Array.from({ length: 1000 }, (_, i) => `t AS t${i}`).join(', ')}`,
  'a huge compound': () => Array.from({ length: 1000 }, () => 'SELECT 1').join(' UNION ALL '),
  'a blob of 900 MB': () => 'SELECT zeroblob(900000000)',
  'a string of 900 MB': () => "SELECT printf('%.*c', 900000000, 'x')",
  'doubling by replace': () => "SELECT length(replace(hex(zeroblob(20000000)), '00', hex(zeroblob(50))))",
  'group_concat without end': () =>
    `${endless} SELECT length(group_concat(hex(zeroblob(10000)))) FROM (SELECT i FROM n LIMIT 100000)`,
  'a sort of everything': () =>
    `${endless} SELECT i, hex(zeroblob(500)) AS z FROM (SELECT i FROM n LIMIT 100000000) ORDER BY z, i DESC LIMIT 1`,
  'a result too large': () => `${endless} SELECT hex(zeroblob(500)) FROM n LIMIT 100000`,
  'rows without end': () => `${endless} SELECT i FROM n`,
  'filling the quota': () => `${endless} INSERT INTO victim SELECT zeroblob(100000) FROM n LIMIT 1000`,
};

/** Run until they are ended, or end the process. */
const ENDED: Record<string, () => string> = {
  'endless recursion': () => `${endless} SELECT count(*) FROM n`,
  'endless recursion in a write': () => `${endless} INSERT INTO victim SELECT i FROM n WHERE i < 0`,
  'quadratic instr, which cannot be interrupted': () => "SELECT instr(zeroblob(20000000), zeroblob(10000000) || x'01')",
  'a cross join': () =>
    `${endless} SELECT count(*) FROM (SELECT i FROM n LIMIT 30000) a, (SELECT i FROM n LIMIT 30000) b WHERE a.i = b.i + 0.5`,
  'LIKE with many wildcards': () => `SELECT '${'a'.repeat(3000)}' LIKE '${'%a'.repeat(1500)}b'`,
  'GLOB with many wildcards': () => `SELECT '${'a'.repeat(3000)}' GLOB '${'*a'.repeat(1500)}b'`,
  'a trigger that calls itself': () =>
    "CREATE TABLE chain (a); CREATE TRIGGER again AFTER INSERT ON chain BEGIN INSERT INTO chain SELECT value FROM json_each('[1,2,3]'); END; " +
    `${endless} INSERT INTO chain SELECT i FROM n LIMIT 1000000000`,
  'EXPLAIN of text that is not UTF-8': () => "EXPLAIN SELECT x'ff'",
  'RETURNING of text that is not UTF-8': () => "INSERT INTO victim VALUES (1) RETURNING cast(x'ff' AS TEXT)",
  'a table named in text that is not UTF-8': () => "SELECT group_concat(cast(x'ff' AS TEXT)) || cast(x'fe' AS TEXT)",
};

const afterwards: number[] = [];

/** The tenant works on, at once, and nothing of its data is gone. */
async function expectUsable(): Promise<void> {
  const started = performance.now();
  expect(await attacker.query('SELECT b FROM t WHERE a = 1')).toEqual([{ b: 'mine' }]);
  afterwards.push(performance.now() - started);
}

describe('refused', () => {
  test.each(Object.entries(REFUSED))('%s', async (_, sql) => {
    const outcome = await attacker.query(sql()).then(
      (rows) => `answered ${JSON.stringify(rows).slice(0, 200)}`,
      (error: Error) => error.message,
    );
    expect(outcome).toMatch(/^D1_ERROR: /);
    expect(outcome).not.toContain(SECRET);
    await expectUsable();
  });
});

describe('ended', () => {
  test.each(Object.entries(ENDED))('%s', async (_, sql) => {
    const started = performance.now();
    const outcome = await attacker.query(sql()).then(
      () => 'answered',
      (error: Error) => error.message,
    );
    expectTime('the end of the query', performance.now() - started, TIMEOUT_MS * 6);
    if (outcome !== 'answered') {
      expect(outcome).toMatch(
        /^D1_ERROR: (query exceeded the time limit|query crashed the database process|.+: SQLITE_)/,
      );
    }
    await expectUsable();
  });

  test('a query that is late is told so', async () => {
    await expect(attacker.query(`${endless} SELECT count(*) FROM n`)).rejects.toThrow(
      `D1_ERROR: query exceeded the time limit of ${TIMEOUT_MS} ms`,
    );
    await expectUsable();
  });

  test('a query that ends the process is told so', async () => {
    await expect(attacker.query("EXPLAIN SELECT x'ff'")).rejects.toThrow(
      'D1_ERROR: query crashed the database process',
    );
    await expectUsable();
  });

  test('text that is not UTF-8 and was stored is readable after one crash', async () => {
    await attacker.query('CREATE TABLE odd (v TEXT)');
    await attacker.query("INSERT INTO odd VALUES (cast(x'ff41' AS TEXT))");
    await attacker.query('SELECT v FROM odd').catch(() => undefined);
    expect(await attacker.query('SELECT v FROM odd')).toEqual([{ v: '\ufffdA' }]);
  });

  test('queries that waited behind it are told to try again, or served', async () => {
    const late = attacker.query(`${endless} SELECT count(*) FROM n`).catch((error: Error) => error.message);
    const others = await Promise.all(
      Array.from({ length: 20 }, () =>
        attacker.query('SELECT b FROM t WHERE a = 1').then(
          (rows) => rows[0].b,
          (error: Error) => error.message,
        ),
      ),
    );
    for (const other of others) expect(other).toMatch(/^(mine|D1_ERROR: D1 DB was reset by another query)/);
    expect(await late).toContain('query exceeded the time limit');
  });
});

test('the next query works within 150 ms', () => {
  const sorted = [...afterwards].sort((a, b) => a - b);
  // On a machine that others keep busy even a bare Node takes longer to start than 40 ms.
  const started = performance.now();
  spawnSync(process.execPath, ['-e', '0']);
  const limit = Math.max(150, 3.5 * (performance.now() - started));
  const p90 = sorted[Math.floor(sorted.length * 0.9)] ?? 0;
  console.log(`next query: p90 ${p90.toFixed(1)} ms, worst of ${sorted.length} ${(sorted.at(-1) ?? 0).toFixed(1)} ms`);
  expect(p90).toBeLessThan(limit);
});

test('nothing outside of the database was read or written', () => {
  expect(readdirSync(outside)).toEqual(['secret.txt']);
  expect(readFileSync(secret, 'utf8')).toBe(SECRET);
  expect(existsSync(join(attacker.folder, 'other.db'))).toBe(false);
});

test("another tenant's queries keep their p99 during all of it", async () => {
  const p99 = async (attack: Promise<unknown>): Promise<number> => {
    let over = false;
    void attack.finally(() => {
      over = true;
    });
    const times: number[] = [];
    while (times.length < 300 || !over) {
      const started = performance.now();
      const response = await fetch(`${neighbour.origin}/select`);
      expect(response.status).toBe(200);
      await response.arrayBuffer();
      times.push(performance.now() - started);
    }
    times.sort((a, b) => a - b);
    return times[Math.floor(times.length * 0.99)] ?? 0;
  };
  const attacks = async (): Promise<void> => {
    for (const sql of Object.values(ENDED)) await attacker.query(sql()).catch(() => undefined);
  };
  const alone: number[] = [];
  const during: number[] = [];
  await p99(Promise.resolve());
  // In turns, so that what else the machine does falls on both.
  for (let round = 0; round < 3; round++) {
    alone.push(await p99(Promise.resolve()));
    during.push(await p99(attacks()));
  }
  const ms = (values: number[]) => values.map((value) => value.toFixed(1)).join(', ');
  console.log(`another tenant's p99: alone ${ms(alone)} ms, beside the attacks ${ms(during)} ms`);
  // Handler, database and this test share two cores with the attack; 4 ms is a time slice of the scheduler.
  expectTime('p99 beside the attacks', middle(during), 2 * middle(alone) + 4);
});

function middle(values: number[]): number {
  return [...values].sort((a, b) => a - b)[Math.floor(values.length / 2)] ?? 0;
}
