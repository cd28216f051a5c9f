import { describe, expect, it } from 'vitest';
import {
  ALLOWED_MODULES,
  ALLOWED_PRAGMAS,
  DENIED_FUNCTIONS,
  DENIED_TABLES,
  guard,
  RefusedSql,
} from '../../../host/bindings/d1/guard.ts';
import { findBinding, Libsql } from '../../../host/bindings/d1/native.ts';
import { UnreadableSql } from '../../../host/bindings/d1/tokenizer.ts';

const REFUSED = [
  // Files, in every way to write a name.
  "select readfile('/etc/passwd')",
  "select READFILE('/etc/passwd')",
  'select "readfile"(\'/x\')',
  "select [ReadFile] ('/x')",
  "select `readfile`('/x')",
  "select readfile/* */('/x')",
  "select readfile -- x\n('/x')",
  "select readfile\n\t('/x')",
  "select \ufeffreadfile('/x')",
  "select 1 where readfile('/x') is null",
  "select * from a join b on readfile('/x')",
  "select * from readfile('/x')",
  "select writefile('a', 'b')",
  "insert into t values(writefile('a','b'))",
  "update t set a = readfile('/x')",
  "delete from t where readfile('/x')",
  "select 1 order by readfile('/x')",
  "with a as (select readfile('/x')) select * from a",
  "select (select (readfile('/x')))",
  "create table x(a default (readfile('/x')))",
  "create table x(a check(readfile('/x')))",
  "create table x(a, b as (readfile('/x')))",
  "create index i on t(readfile('/x'))",
  "create index i on t(a) where readfile('/x')",
  "create view v as select readfile('/etc/passwd')",
  "create trigger g after insert on t begin select writefile('a','b'); end",
  "create trigger g after insert on t when readfile('/x') begin select 1; end",
  "explain select readfile('/x')",
  "select * from fsdir('/')",
  "select * from 'fsdir'('/')",
  'select * from fsdir',
  "select * from 'fsdir' where path='/'",
  'select * from main."fsdir"',
  "select * from main.'fsdir'",
  "select * from a, 'fsdir'",
  "select * from (a, 'fsdir')",
  "select * from (('fsdir'))",
  "select * from a join b on a.x = b.x, 'fsdir'",
  "select 1 in 'fsdir'",
  "insert into 'sqlite_dbpage' values(1,x'00')",
  "update sqlite_dbpage set data = x'00'",
  'delete from "sqlite_dbpage"',
  'select * from sqlite_stmt',
  'select * from dbstat',
  'select lsmode(1)',
  "select load_extension('x')",
  // SQL out of text.
  "select sha3_query('select 1')",
  // Other databases and copies of this one.
  "attach 'x' as y",
  "ATTACH DATABASE 'x' AS y",
  "  -- c\n attach 'x' as y",
  "/*;*/attach 'x' as y",
  "explain attach 'x' as b",
  'detach x',
  'vacuum',
  "vacuum into 'x'",
  'explain query plan vacuum',
  "select 1; vacuum into 'x'",
  "select 1;;;attach 'x' as y",
  // Settings.
  'pragma writable_schema=1',
  'PRAGMA main.journal_mode=off',
  'pragma "journal_mode"',
  "pragma 'journal_mode'",
  'pragma [max_page_count]=1',
  'pragma/**/hard_heap_limit=0',
  "pragma temp_store_directory='/tmp'",
  'pragma trusted_schema=on',
  'pragma application_id=1',
  'select * from pragma_database_list',
  "select * from pragma_journal_mode('off')",
  'select * from "pragma_function_list"',
  // Transactions and temporary things outlive a request.
  'begin',
  'begin immediate',
  'commit',
  'end',
  'rollback',
  'savepoint a',
  'release a',
  'select 1; begin',
  'create temp table x(a)',
  'create temporary view v as select 1',
  'create table temp.x(a)',
  'create table if not exists "temp".x(a)',
  // Modules.
  "create virtual table x using zipfile('x')",
  "create virtual table x using csv(filename='/etc/passwd')",
  'create virtual table x using dbstat',
  'create virtual table x using rtree(a,b,c)',
  'create virtual table x using "fsdir"',
  "create virtual table x using fts5(name, content='fsdir')",
  'create virtual table x using fts5(name, content=sqlite_dbpage)',
  'create virtual table x using fts5(name, content=[pragma_database_list])',
  "create function f language wasm as 'x'",
  // What desynchronises a careless tokenizer.
  "select $x('), readfile('/etc/passwd') --'",
  "select $x::y('), readfile('/etc/passwd') --')",
  "select '''', readfile('/x'), ''''",
  'select "a""", readfile(\'/x\')',
  "select [a'], readfile('/x'), 'b'",
  "select `a``'`, readfile('/x')",
  "select x'00', readfile('/x')",
  "select 1--\n,readfile('/x')",
  "select 1/*'*/,readfile('/x')/*'*/",
  "create trigger g after insert on t begin select 1; end; attach 'x' as y",
  "create trigger g after insert on t begin select case when 1 then 2 end; end; vacuum into 'x'",
];

const ALLOWED = [
  "select count(*) from t where a='attach''d' -- vacuum",
  "insert into \"begin\"(a) values('it''s')",
  'select case when 1 then 2 end',
  'create trigger t after insert on a begin update a set b=1; select 1; end',
  'create trigger t after insert on a begin update a set b=case when 1 then 2 end; end;',
  'create trigger if not exists t after update of a on b for each row when new.a > 1 begin delete from c; end',
  'with recursive c(n) as (select 1 union all select n+1 from c where n < 5) select * from c',
  'PRAGMA table_info("x")',
  'pragma main.table_xinfo(x)',
  'PRAGMA foreign_keys',
  'create virtual table f using fts5(a,b)',
  "create virtual table if not exists f using fts5(a, content='t', content_rowid='id')",
  'create virtual table v using fts5vocab(f, row)',
  "select x'00', X'ff', 1e5, .5, a.b, ?1, :n from t",
  "select json_extract(a,'$.b') from t, json_each(t.c)",
  "select * from pragma_table_info('t')",
  'explain query plan select 1',
  // The words themselves, where they are not what they name.
  "select 'readfile', 'vacuum', 'attach', 'begin'",
  "insert into t values('readfile(1)', 'fsdir')",
  "select * from t where name in ('fsdir', 'dbstat')",
  "select * from t where name = 'fsdir'",
  "select coalesce('a', 'fsdir') from t",
  "select * from json_each('[1]', 'fsdir')",
  "update t set a = 'fsdir', b = 'dbstat' where c like 'fsdir'",
  "values('fsdir'), ('dbstat')",
  'select readfile from t',
  'select t.readfile, "readfile" from t',
  'create table edit(id integer primary key, readfile text)',
  'create table if not exists edit (id)',
  'insert into edit(id) values (1)',
  'create index i on edit(id)',
  'create unique index i on edit(id)',
  'create table c(a references edit(id))',
  'alter table t add column attach text',
  'select attach, vacuum, pragma from t',
  'create table "vacuum"("begin" text, "commit" text)',
  'select end from t',
  'create table temp(a)',
  'select temp.a from temp',
  "insert into t values('pragma_database_list')",
  '-- nothing\n',
  '',
  ';;',
  "select 'a' /* readfile('x') */ -- attach 'x'",
];

describe('the guard', () => {
  it.each(REFUSED)('refuses %s', (sql) => {
    expect(() => guard(sql)).toThrow(RefusedSql);
  });

  it.each(ALLOWED)('lets %s pass', (sql) => {
    expect(() => guard(sql)).not.toThrow();
  });

  it.each(["select 'open", 'select "open', 'select [open', 'select `open', 'select 1\0', "select 'a\0b'"])(
    'cannot read %j, as SQLite cannot',
    (sql) => {
      expect(() => guard(sql)).toThrow(UnreadableSql);
    },
  );
});

describe('the tokenizer', () => {
  it('sees every call that SQLite compiles, whatever surrounds it', () => {
    const libsql = new Libsql(findBinding(import.meta.url));
    const database = libsql.open(':memory:');
    const pieces = [
      ...[
        "'",
        '"',
        '`',
        '[',
        ']',
        '(',
        ')',
        ',',
        ' ',
        '\n',
        '--',
        '/*',
        '*/',
        ';',
        '$a',
        '$a(',
        ':b',
        '::',
        '?',
        '?1',
        '@',
      ],
      ...[
        "''",
        "'x'",
        '"y"',
        "x'00'",
        'x',
        '1',
        '1.',
        '.5',
        '0x1',
        '+',
        '||',
        'as',
        'z',
        '\ufeff',
        '\u00a0',
        'case',
        'end',
      ],
      ...[
        "readfile('/x')",
        ",readfile('/x'),",
        " readfile ('/x') ",
        '"readfile"(\'/x\')',
        "[readfile]('/x')",
        'from json_each(1)',
      ],
    ];
    let seed = 42;
    const random = (limit: number): number => {
      seed = (seed * 1_103_515_245 + 12_345) & 0x7fffffff;
      return seed % limit;
    };
    let calls = 0;
    for (let round = 0; round < 60_000; round++) {
      let sql = 'select 1,';
      for (let count = 1 + random(7); count > 0; count--) sql += pieces[random(pieces.length)];
      let program: unknown[][];
      try {
        const statement = libsql.prepare(database, `explain ${sql}`);
        program = libsql.rows(statement, []);
        libsql.reset(statement, []);
      } catch {
        continue;
      }
      if (!program.some((row) => String(row[5]).startsWith('readfile('))) continue;
      calls++;
      expect(() => guard(sql), sql).toThrow();
    }
    // Otherwise nothing was tested.
    expect(calls).toBeGreaterThan(100);
  });
});

describe('the lists of the guard', () => {
  const libsql = new Libsql(findBinding(import.meta.url));
  const database = libsql.open(':memory:');
  const names = (sql: string): string[] =>
    libsql.rows(libsql.prepare(database, sql), []).map((row) => String(row[0]).toLowerCase());

  /** Functions of libSQL 0.5.29 that stay inside the tenant's data. A new one has to be judged and added here or denied. */
  const HARMLESS = new Set(
    `-> ->> abs acos acosh asin asinh atan atan2 atanh atn2 avg bm25 ceil ceiling changes char charindex coalesce concat
    concat_ws cos cosh cot coth count cume_dist current_date current_time current_timestamp date datetime degrees
    dense_rank difference exp first_value floor format geopoly_area geopoly_bbox geopoly_blob geopoly_ccw
    geopoly_contains_point geopoly_debug geopoly_group_bbox geopoly_json geopoly_overlap geopoly_regular geopoly_svg
    geopoly_within geopoly_xform glob group_concat hex highlight ifnull iif instr json json_array json_array_length
    json_error_position json_extract json_group_array json_group_object json_insert json_object json_patch json_quote
    json_remove json_replace json_set json_type json_valid jsonb jsonb_array jsonb_extract jsonb_group_array
    jsonb_group_object jsonb_insert jsonb_object jsonb_patch jsonb_remove jsonb_replace jsonb_set julianday lag
    last_insert_rowid last_rows_affected last_value lead leftstr length like likelihood likely ln log log10 lower
    lower_quartile ltrim match matchinfo max median min mode nth_value ntile nullif octet_length offsets optimize padc
    padl padr percent_rank pi power printf proper quote radians random randomblob rank regexp regexpi replace replicate
    reverse rightstr round row_number rtrim sha3 sign sin sinh snippet soundex sqlite_version sqrt square stdev strfilter
    strftime string_agg substr substring subtype sum tan tanh time timediff total total_changes trim typeof unhex unicode
    unixepoch unlikely upper upper_quartile uuid uuid_blob uuid_str variance vector vector16 vector1bit vector32 vector64
    vector8 vector_distance_cos vector_distance_l2 vector_extract vectorb16 zeroblob`.split(/\s+/),
  );
  const HARMLESS_MODULES = new Set('generate_series json_each json_tree vector_top_k'.split(' '));
  /** Tables that CREATE VIRTUAL TABLE would have to make: the allow-list decides. */
  const CREATED_MODULES = new Set('fts3 fts4 fts5 fts5vocab geopoly rtree rtree_i32'.split(' '));

  it('know every function of the installed libSQL', () => {
    const unknown = names('select distinct name from pragma_function_list').filter(
      (name) => !HARMLESS.has(name) && !DENIED_FUNCTIONS.has(name),
    );
    expect(unknown).toEqual([]);
  });

  it('know every module of the installed libSQL', () => {
    const unknown = names('select name from pragma_module_list').filter(
      (name) =>
        !DENIED_TABLES.has(name) &&
        !HARMLESS_MODULES.has(name) &&
        !CREATED_MODULES.has(name) &&
        !name.startsWith('pragma_'),
    );
    expect(unknown).toEqual([]);
    expect([...ALLOWED_MODULES].every((name) => CREATED_MODULES.has(name))).toBe(true);
  });

  it('are not all that keeps a definition from files', () => {
    libsql.execute(database, 'pragma trusted_schema=on');
    const reaches = ["readfile('/x')", "writefile('/x','y')", "load_extension('/x')", "sha3_query('select 1')"];
    for (const [index, call] of reaches.entries()) {
      libsql.execute(database, `create view reaches${index} as select ${call} as a`);
      expect(() => names(`select a from reaches${index}`)).toThrow('unsafe use of');
    }
  });

  it('allow only pragmas that the installed libSQL has', () => {
    const known = new Set(names('select name from pragma_pragma_list'));
    expect([...ALLOWED_PRAGMAS].filter((name) => !known.has(name))).toEqual([]);
  });
});
