import { describe, expect, it } from 'vitest';
import { Bookmarks } from '../../../host/bindings/d1/bookmark.ts';
import { carefulText, decodeRow } from '../../../host/bindings/d1/careful.ts';
import { sqliteMessage } from '../../../host/bindings/d1/failure.ts';
import { checkParameters } from '../../../host/bindings/d1/parameters.ts';
import { parseQueries, resultsFormat, successText } from '../../../host/bindings/d1/protocol.ts';
import { mendStrings, offsetOf } from '../../../host/bindings/d1/quotes.ts';
import { readStatements } from '../../../host/bindings/d1/reading.ts';
import { parseSettings } from '../../../host/bindings/d1/settings.ts';
import type { Statement } from '../../../host/bindings/d1/statements.ts';

const META = {
  duration: 0.25,
  changes: 1,
  lastRowId: 7,
  changed: true,
  sizeAfter: 8192,
  rowsRead: 2,
  rowsWritten: 3,
};

describe('parameters', () => {
  it('become what SQLite can bind', () => {
    expect(checkParameters([1, 1.5, 'x', null, true, false, [0, 255]])).toEqual([
      1,
      1.5,
      'x',
      null,
      1,
      0,
      Buffer.from([0, 255]),
    ]);
    expect(checkParameters([[-1, 500]])).toEqual([Buffer.from([255, 244])]);
    expect(checkParameters(undefined)).toEqual([]);
    expect(checkParameters(null)).toEqual([]);
  });

  it.each([[[{}]], [[['a']]], ['x'], [{ a: 1 }], [[[1.5, {}]]]])('refuse %j', (params) => {
    expect(() => checkParameters(params)).toThrow();
  });

  it("keep D1's limits", () => {
    expect(() => checkParameters(Array(101).fill(1))).toThrow('too many SQL variables');
    expect(() => checkParameters(['x'.repeat(2_000_001)])).toThrow('too big');
    expect(checkParameters(['x'.repeat(2_000_000)])).toHaveLength(1);
    expect(() => checkParameters([Array(2_000_001).fill(0)])).toThrow('too big');
  });
});

describe('requests', () => {
  it('are one query or an array', () => {
    expect(parseQueries('{"sql":"select ?","params":[1]}')).toEqual([{ sql: 'select ?', parameters: [1] }]);
    expect(parseQueries('[{"sql":"a"},{"sql":"b","params":null}]')).toHaveLength(2);
  });

  it.each(['', '{', 'null', '1', '{}', '{"sql":1}', '[[]]', '{"sql":"a","params":{}}'])('refuse %j', (body) => {
    expect(() => parseQueries(body)).toThrow();
  });

  it('say in the query string how results are wanted', () => {
    expect(resultsFormat('?resultsFormat=ROWS_AND_COLUMNS')).toBe('rows');
    expect(resultsFormat('?resultsFormat=NONE')).toBe('objects');
    expect(resultsFormat('')).toBe('objects');
  });
});

describe('answers', () => {
  const result = { columns: ['a', 'a'], rows: [[1, 2]], meta: META };

  it('carry rows and columns, and meta with every figure', () => {
    expect(JSON.parse(successText([result], 'rows'))).toEqual([
      {
        success: true,
        results: { columns: ['a', 'a'], rows: [[1, 2]] },
        meta: {
          served_by: 'turnpike',
          served_by_primary: true,
          total_attempts: 1,
          timings: { sql_duration_ms: 0.25 },
          duration: 0.25,
          changes: 1,
          last_row_id: 7,
          changed_db: true,
          size_after: 8192,
          rows_read: 2,
          rows_written: 3,
        },
      },
    ]);
  });

  it('carry objects for run(), the later of two equal names winning', () => {
    expect(JSON.parse(successText([result], 'objects'))[0].results).toEqual([{ a: 2 }]);
  });

  it('name errors as workerd does', () => {
    expect(sqliteMessage('no such table: x', 'SQLITE_ERROR')).toBe('no such table: x: SQLITE_ERROR');
    expect(sqliteMessage('UNIQUE constraint failed: t.a', 'SQLITE_CONSTRAINT_UNIQUE')).toBe(
      'UNIQUE constraint failed: t.a: SQLITE_CONSTRAINT (extended: SQLITE_CONSTRAINT_UNIQUE)',
    );
    expect(sqliteMessage('near "x": syntax error', 'SQLITE_ERROR', 4)).toBe(
      'near "x": syntax error at offset 4: SQLITE_ERROR',
    );
    expect(sqliteMessage('cannot store TEXT value in INT column t.a', 'UNKNOWN_SQLITE_ERROR_3091')).toBe(
      'cannot store TEXT value in INT column t.a: SQLITE_CONSTRAINT (extended: SQLITE_CONSTRAINT_DATATYPE)',
    );
    expect(sqliteMessage('database or disk is full', 'SQLITE_FULL')).toContain('Exceeded maximum DB size');
  });
});

describe('bookmarks', () => {
  it('sort increasingly, over a clock that stands, steps back, and a restart', () => {
    let now = 1_700_000_000_000;
    const first = new Bookmarks(0, () => now);
    const made = [first.next(), first.next()];
    now -= 10_000;
    made.push(first.next());
    now += 20_000;
    made.push(first.next());
    now -= 15_000;
    made.push(new Bookmarks(now + 15_001, () => now).next());
    const sorted = [...made].sort((a, b) => a.localeCompare(b));
    expect(made).toEqual(sorted);
    expect(new Set(made).size).toBe(made.length);
    for (const bookmark of made) expect(bookmark).toMatch(/^[0-9a-f]{8}-[0-9a-f]{8}-[0-9a-f]{8}-[0-9a-f]{32}$/);
  });
});

describe('double-quoted strings', () => {
  /** What is left of a text in a database that has these columns, and how often it was prepared. */
  const mended = (sql: string, columns: string[], message?: string) => {
    const statement = readStatements(sql).statements[0] as Statement;
    const complaintOf = (text: string): string | undefined => {
      const names = [...text.matchAll(/(?<!\.)"([^"]*)"(?!\.)/g)].map(([, name]) => name as string);
      const unknown = names.find((name) => !columns.includes(name));
      return unknown === undefined ? undefined : `no such column: ${unknown}`;
    };
    const mending = mendStrings(sql, statement, message ?? complaintOf(sql) ?? '');
    let attempts = 0;
    let step = mending.next();
    for (; !step.done; attempts++) step = mending.next(complaintOf(step.value));
    return { sql: step.value?.sql, attempts };
  };

  it('are those that name no column, however many', () => {
    expect(mended('select "a", "b", "c", "a"', ['b']).sql).toBe(`select 'a', "b", 'c', 'a'`);
    expect(mended(`select "it's"`, []).sql).toBe("select 'it''s'");
    const many = Array.from({ length: 200 }, (_, index) => `"v${index}"`).join();
    expect(mended(`insert into t values (${many})`, [])).toEqual({
      sql: `insert into t values (${many.replaceAll('"', "'")})`,
      attempts: 201,
    });
  });

  it('are told from columns of the same name elsewhere in the text', () => {
    const text = 'select "a" from t where "a" = (select "a" from u)';
    const statement = readStatements(text).statements[0] as Statement;
    // Only the last one, of another table, is no column.
    const complaintOf = (sql: string): string | undefined =>
      sql.includes('select "a" from u') ? 'no such column: a' : undefined;
    const mending = mendStrings(text, statement, 'no such column: a');
    let step = mending.next();
    while (!step.done) step = mending.next(complaintOf(step.value));
    expect(step.value?.sql).toBe(`select "a" from t where "a" = (select 'a' from u)`);
  });

  it('are left alone for any other error, in schemas, and where a table is named', () => {
    expect(mended('select "a"', [], 'no such table: a').sql).toBeUndefined();
    expect(mended('create view v as select "a"', [], 'no such column: a').sql).toBeUndefined();
    expect(mended('select t."a" from t', [], 'no such column: t.a').sql).toBeUndefined();
  });

  it('are not looked for without end', () => {
    const many = Array.from({ length: 1_001 }, (_, index) => `"v${index}"`).join();
    expect(mended(`select ${many}`, [])).toEqual({ sql: undefined, attempts: 0 });
  });

  it('offsets are told only when they are certain', () => {
    const offset = (sql: string, message: string): number | undefined =>
      offsetOf(sql, readStatements(sql).statements.at(-1) as Statement, message);
    expect(offset('select nofunc(1)', 'no such function: nofunc')).toBe(7);
    expect(offset('select x, x', 'no such column: x')).toBeUndefined();
    expect(offset('select 1', 'database is locked')).toBeUndefined();
    expect(offset("select 'é', x", 'no such column: x')).toBe(13);
    expect(offset('  select a.b.x', 'no such column: a.b.x')).toBe(9);
    expect(offset("select 'é';  /* é */ selec", 'near "selec": syntax error')).toBe(9);
    expect(offset('update t set x = 1', 'no such column: x')).toBeUndefined();
    expect(offset('select * from t join u on t.x = 1', 'no such column: t.x')).toBeUndefined();
  });
});

describe('careful reading', () => {
  it('asks for text as bytes and decodes it', () => {
    expect(carefulText('select a from t -- x', 1)).toContain('select a from t -- x\n)');
    expect(carefulText('select 1', 0)).toBeUndefined();
    const row = [Buffer.from([0xff, 0x41]), 1, Buffer.from([1]), 0, 5, 0, null, 0];
    decodeRow(row);
    expect(row).toEqual(['\ufffdA', Buffer.from([1]), 5, null]);
  });
});

describe('settings', () => {
  it('need a place to listen and a database', () => {
    expect(parseSettings('{"socket":"/s","database":"/d"}')).toMatchObject({
      listen: '/s',
      database: '/d',
      timeoutMs: 30_000,
    });
    expect(parseSettings('{"fd":3,"database":"/d","timeoutMs":5}')).toMatchObject({ listen: 3, timeoutMs: 5 });
    for (const line of [
      '{}',
      '{"socket":"/s"}',
      '{"database":"/d"}',
      '{"socket":"/s","database":"/d","timeoutMs":0}',
    ]) {
      expect(() => parseSettings(line)).toThrow();
    }
  });
});
