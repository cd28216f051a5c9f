import { DatabaseSync } from 'node:sqlite';
import { beforeAll, describe, expect, it } from 'vitest';
import {
  type DataPoint,
  insert,
  LAST_BATCH,
  MAKE_TABLE,
  makeView,
  markBatch,
  removeOlder,
  removeOldest,
} from '../../../host/bindings/analytics/schema.ts';
import { QueryFault, translate } from '../../../host/bindings/analytics/sql.ts';

const HOUR = 3_600;
let database: DatabaseSync;
const run = ({ sql, params }: ReturnType<typeof insert>) => database.prepare(sql).run(...params);
const ask = (sql: string) =>
  database
    .prepare(translate(sql))
    .all()
    .map((row) => ({ ...row }));
const point = (more: Partial<DataPoint>): DataPoint => ({
  timestamp: 20 * HOUR + 61,
  dataset: 'visits',
  index: 'a',
  blobs: [],
  doubles: [],
  ...more,
});

beforeAll(() => {
  database = new DatabaseSync(':memory:');
  for (const sql of [
    ...MAKE_TABLE,
    ...MAKE_TABLE,
    makeView('other'),
    makeView('visits'),
    makeView('visits'),
    makeView('it’s "odd"'),
  ])
    database.exec(sql);
  run(insert(point({ blobs: ['/', null, 'de'], doubles: [1.5] })));
  run(insert(point({ timestamp: 21 * HOUR, index: 'b', blobs: ['/x'], doubles: [2, 4] })));
  run(insert(point({ dataset: 'Visits', index: null, blobs: ['/'] })));
  run(insert(point({ dataset: 'it’s "odd"' })));
  run(insert(point({ dataset: 'other', blobs: ['secret'] })));
});

describe('data points', () => {
  it('are found under their dataset, with what was not given as empty text and 0', () => {
    expect(ask('SELECT count() AS n, SUM(_sample_interval) AS s FROM visits')).toEqual([{ n: 3, s: 3 }]);
    const [first] = ask("SELECT * FROM visits WHERE blob3 = 'de'");
    expect(first).toMatchObject({ index1: 'a', blob1: '/', blob2: '', blob20: '', double1: 1.5, double20: 0 });
    expect(Object.keys(first ?? {})).toHaveLength(4 + 20 + 20);
    expect(ask('SELECT count() AS n FROM "it’s ""odd"""')).toEqual([{ n: 1 }]);
  });

  it('go when they are old, and the oldest first', () => {
    database.exec('BEGIN');
    run(removeOlder(21 * HOUR));
    expect(ask('SELECT index1 FROM visits')).toEqual([{ index1: 'b' }]);
    database.exec('ROLLBACK');
    database.exec('BEGIN');
    run(removeOldest(10));
    expect(ask('SELECT index1 FROM visits ORDER BY 1')).toEqual([{ index1: '' }, { index1: 'b' }]);
    run(removeOldest(2));
    expect(ask('SELECT index1 FROM visits')).toEqual([]);
    expect(ask('SELECT blob1 FROM other')).toEqual([{ blob1: 'secret' }]);
    run(removeOldest(1));
    expect(ask('SELECT index1 FROM visits')).toEqual([]);
    run(removeOldest(1));
    database.exec('ROLLBACK');
  });

  it('know the batch that was written last', () => {
    run(markBatch('one'));
    run(markBatch('two'));
    expect(
      database
        .prepare(LAST_BATCH)
        .all()
        .map((row) => ({ ...row })),
    ).toEqual([{ batch: 'two' }]);
  });
});

describe('SQL', () => {
  it.each([
    ['SHOW TABLES;', [{ dataset: 'it’s "odd"' }, { dataset: 'other' }, { dataset: 'visits' }]],
    [
      "SELECT toStartOfInterval(timestamp, INTERVAL '1' HOUR) AS t, count() AS n FROM visits GROUP BY t ORDER BY t",
      [
        { t: 20 * HOUR, n: 2 },
        { t: 21 * HOUR, n: 1 },
      ],
    ],
    ['SELECT intDiv(toUInt32(timestamp), 60) * 60 AS t FROM visits LIMIT 1 FORMAT JSON', [{ t: 20 * HOUR + 60 }]],
    ["SELECT toDateTime('1970-01-02 00:00:00') - INTERVAL '2' DAY AS t", [{ t: -86_400 }]],
    ['SELECT toStartOfDay(toStartOfMinute(86461)) AS t', [{ t: 86_400 }]],
    [
      "SELECT countIf(blob1 = '/') AS c, sumIf(double1, blob1 = '/x') AS s, avgIf(double1, double1 > 0) AS a FROM visits",
      [{ c: 2, s: 2, a: 1.75 }],
    ],
    ["SELECT if(double1 > 1, 'much', 'little') AS x FROM visits ORDER BY index1 LIMIT 1", [{ x: 'little' }]],
    ["WITH x AS (SELECT blob1 AS path FROM visits) SELECT replace(path, '/', '-') AS p FROM x LIMIT 1", [{ p: '-' }]],
    ["SELECT 'INSERT; now()' || ';' AS text -- now() ;", [{ text: 'INSERT; now();' }]],
    ['SELECT count() AS n FROM visits WHERE timestamp > NOW() - INTERVAL 1 WEEK', [{ n: 0 }]],
    ['SELECT 2>=1 AS a, 3<>4 AS b, max("visits"."double2") AS c FROM visits', [{ a: 1, b: 1, c: 4 }]],
  ])('%s', (sql, rows) => {
    expect(ask(sql)).toEqual(rows);
  });

  it.each([
    ['', /Only SELECT/],
    ['DELETE FROM turnpike_points', /Only SELECT/],
    ['PRAGMA query_only = 0', /Only SELECT/],
    ['EXPLAIN SELECT 1', /Only SELECT/],
    ['SELECT 1; DELETE FROM turnpike_points', /One statement/],
    ['WITH x AS (SELECT 1) DELETE FROM turnpike_points', /writeDataPoint/],
    ['WITH x AS (SELECT 1) INSERT INTO turnpike_points SELECT * FROM x', /writeDataPoint/],
    ['WITH x AS (SELECT 1) REPLACE INTO turnpike_points SELECT * FROM x', /writeDataPoint/],
    ['WITH x AS (SELECT 1) UPDATE turnpike_points SET index1 = 1', /writeDataPoint/],
    ['SELECT ?', /parameter/],
    ['SELECT (1', /not closed/],
    ['SELECT 1)', /not opened/],
    ["SELECT 'x", /unrecognized token/],
    [`SELECT ${'('.repeat(101)}1${')'.repeat(101)}`, /More than 100/],
    [`SELECT '${'x'.repeat(20_000)}'`, /longer than/],
    ["SELECT NOW() - INTERVAL '1' YEAR", /not year/],
    ["SELECT NOW() - INTERVAL '1.5' HOUR", /whole number/],
    ['SELECT toStartOfInterval(timestamp, toStartOfInterval(1, 2)) FROM visits', /takes an INTERVAL/],
    ['SELECT intDiv(1) FROM visits', /takes 2 arguments here, not 1/],
    ['SELECT 1 FORMAT CSV', /leave out FORMAT/],
  ])('%.60s is refused', (sql, why) => {
    expect(() => translate(sql)).toThrow(QueryFault);
    expect(() => translate(sql)).toThrow(why);
  });
});
