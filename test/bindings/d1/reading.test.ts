import { describe, expect, it } from 'vitest';
import { SqlFailure } from '../../../host/bindings/d1/failure.ts';
import { readStatements, textOf } from '../../../host/bindings/d1/reading.ts';
import { TOKEN, tokenize } from '../../../host/bindings/d1/tokenizer.ts';
import { expectTime } from '../../times.ts';

const texts = (sql: string): string[] => readStatements(sql).statements.map((statement) => textOf(sql, statement));
const kinds = (sql: string): string[] => readStatements(sql).statements.map((statement) => statement.kind);

describe('statements of a text', () => {
  it.each([
    ['select 1', ['select 1']],
    ['select 1;', ['select 1']],
    [' ;; select 1 ; -- end', ['select 1']],
    ['select \';\' ; select ";" ; select 3', ["select ';'", 'select ";"', 'select 3']],
    ['', []],
    ['-- only a comment', []],
    ['/* ; */', []],
    [
      'create trigger t after insert on a begin select 1; select case 1 when 1 then 2 end; end; select 2',
      ['create trigger t after insert on a begin select 1; select case 1 when 1 then 2 end; end', 'select 2'],
    ],
    ['create table trigger_log(a); select 1', ['create table trigger_log(a)', 'select 1']],
    ['select 1 as begin; select 2', ['select 1 as begin', 'select 2']],
  ])('%j', (sql, expected) => {
    expect(texts(sql)).toEqual(expected);
  });

  it.each([
    ['select 1', ['read']],
    ['values(1)', ['read']],
    ['with a as (select 1) select * from a', ['read']],
    ['with a as (select 1) insert into t select * from a', ['write']],
    ['with a as (select 1) delete from t', ['write']],
    ['replace into t values(1)', ['write']],
    ['explain insert into t values(1)', ['write']],
    ['explain query plan select 1', ['read']],
    ['create table t(a)', ['schema']],
    ['pragma table_list', ['pragma']],
    ['selec 1', ['other']],
  ])('of %j are %j', (sql, expected) => {
    expect(kinds(sql)).toEqual(expected);
  });

  it.each([
    ['select 1', 0],
    ['select ?, ?', 2],
    ['select ?3', 3],
    ['select ?, ?1', 1],
    ['select :a, :a, @b, $c', 3],
    ['select ?5, ?', 6],
    ['select \'?\', "?", [?], -- ?\n ?', 1],
  ])('of %j take %i parameters', (sql, expected) => {
    expect(readStatements(sql).parameters).toBe(expected);
  });

  it('only the last one may have parameters', () => {
    expect(readStatements('select 1; select ?').parameters).toBe(1);
    expect(() => readStatements('select ?; select ?')).toThrow(/only the last statement can have parameters/);
  });

  it('must not be longer than 100 KB in UTF-8', () => {
    expect(() => readStatements(`select '${'ä'.repeat(49_000)}'`)).not.toThrow();
    expect(() => readStatements(`select '${'ä'.repeat(50_000)}'`)).toThrow(SqlFailure);
  });
});

describe('tokens', () => {
  it('keep what quotes mean', () => {
    const tokens = tokenize(`a "b""c" 'd''e' [f] \`g\` x'00' 12.5e3 ?1 :h`);
    expect(tokens.map(({ kind, text }) => [kind, text])).toEqual([
      [TOKEN.word, 'a'],
      [TOKEN.quoted, 'b"c'],
      [TOKEN.string, "d'e"],
      [TOKEN.quoted, 'f'],
      [TOKEN.quoted, 'g'],
      [TOKEN.literal, 'blob'],
      [TOKEN.literal, ''],
      [TOKEN.variable, '?1'],
      [TOKEN.variable, ':h'],
    ]);
  });

  it('take letters beyond ASCII, even spaces, as parts of words, as SQLite does', () => {
    expect(tokenize('a\u00a0b').map(({ text }) => text)).toEqual(['a\u00a0b']);
  });

  it('are found in linear time', () => {
    const started = performance.now();
    for (const piece of ["'a'", '"a"', '/**/', '--\n', '(', '$a(', 'a ', '1.']) tokenize(piece.repeat(30_000));
    expectTime('finding tokens', performance.now() - started, 2_000);
  });
});
