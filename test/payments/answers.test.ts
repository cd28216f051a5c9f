import { mkdir, mkdtemp, readdir, readFile, rm, utimes, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import pino from 'pino';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { type AnswerBudget, Answers } from '../../host/payments/settlement/answers.ts';
import type { PaymentRow } from '../../host/registry/payments/schema.ts';

const BLOCK = 4096;
const WIDE: AnswerBudget = { tenantBytes: 100 * BLOCK, totalBytes: 100 * BLOCK, reserveBytes: 0 };

let folder: string;
beforeEach(async () => {
  folder = await mkdtemp(path.join(tmpdir(), 'tp-answers-'));
});
afterEach(() => rm(folder, { recursive: true }));

async function open(budget: Partial<AnswerBudget> = {}): Promise<Answers> {
  const answers = new Answers(folder, { ...WIDE, ...budget }, pino({ level: 'silent' }));
  await answers.listed;
  return answers;
}

const row = (tenant: string, id: string, attempts = 1) => ({ tenant, id, attempts }) as PaymentRow;
const answer = (text: string) => ({
  status: 201,
  headers: [['set-cookie', 'ä=1']] as [string, string][],
  body: Buffer.from(text),
});
const fileOf = (tenant: string, id: string, attempts = 1) => path.join(folder, tenant, `${id}.${attempts}`);

/** The ids of those that are kept, in memory's view and the disk's. */
async function kept(answers: Answers, tenant: string, ids: string[]): Promise<string> {
  let found = '';
  for (const id of ids) if (await answers.read(row(tenant, id))) found += id;
  const files = await readdir(path.join(folder, tenant)).catch(() => []);
  expect(files.sort()).toEqual([...found].sort().map((id) => `${id}.1`));
  return found;
}

/** Files as an earlier process left them, the first one the oldest. */
async function left(answers: Answers, tenant: string, ids: string): Promise<void> {
  for (const [index, id] of [...ids].entries()) {
    await answers.keep(row(tenant, id), answer(id));
    await utimes(fileOf(tenant, id), 1_000 + index, 1_000 + index);
  }
}

test('an answer is what it was, also after a restart; each attempt has its own', async () => {
  const answers = await open();
  await answers.keep(row('ta', 'a'), answer('first'));
  await answers.keep(row('ta', 'a'), answer('never: it is kept already'));
  await answers.keep(row('ta', 'a', 2), answer('second'));
  for (const each of [answers, await open()]) {
    expect(await each.read(row('ta', 'a'))).toEqual(answer('first'));
    expect(await each.read(row('ta', 'a', 2))).toEqual(answer('second'));
    expect(await each.read(row('tb', 'a'))).toBeUndefined();
    expect(each.size).toBe(2 * BLOCK);
  }
  await answers.drop(row('ta', 'a'));
  expect(await answers.read(row('ta', 'a'))).toBeUndefined();
  expect(answers.size).toBe(BLOCK);
});

test('a tenant that is over its budget loses its own oldest, and nobody else theirs', async () => {
  const answers = await open({ tenantBytes: 3 * BLOCK });
  await left(answers, 'tb', 'xyz');
  await left(answers, 'ta', 'abcde');
  expect(await kept(answers, 'ta', [...'abcde'])).toBe('cde');
  expect(await kept(answers, 'tb', [...'xyz'])).toBe('xyz');
  await answers.keep(row('ta', 'f'), answer('x'.repeat(3 * BLOCK)));
  expect(await kept(answers, 'ta', [...'cdef'])).toBe('cde');
});

test('all together keep to the budget in all, and the oldest go first whose ever they are', async () => {
  const answers = await open({ totalBytes: 4 * BLOCK });
  await left(answers, 'ta', 'ab');
  await left(answers, 'tb', 'cd');
  await left(answers, 'tc', 'ef');
  expect(await kept(answers, 'ta', ['a', 'b'])).toBe('');
  expect(await kept(answers, 'tb', ['c', 'd'])).toBe('cd');
  expect(answers.size).toBe(4 * BLOCK);
});

test('many at once keep to the budget on the disk too', async () => {
  const answers = await open({ tenantBytes: 5 * BLOCK });
  await Promise.all(Array.from({ length: 40 }, (_, index) => answers.keep(row('ta', `p${index}`), answer('x'))));
  expect(answers.size).toBe(5 * BLOCK);
  expect(await readdir(path.join(folder, 'ta'))).toHaveLength(5);
});

test('the last bytes of the disk are left alone', async () => {
  const answers = await open({ reserveBytes: Number.MAX_SAFE_INTEGER });
  await answers.keep(row('ta', 'a'), answer('x'));
  expect(await kept(answers, 'ta', ['a'])).toBe('');
  expect(answers.size).toBe(0);
});

test('a damaged file is no answer', async () => {
  const answers = await open();
  await answers.keep(row('ta', 'a'), answer('whole'));
  const whole = await readFile(fileOf('ta', 'a'));
  const changed = Buffer.from(whole);
  changed[changed.length - 1] = 0;
  const broken = [whole.subarray(0, -1), changed, Buffer.alloc(whole.length), Buffer.from('{\n'), Buffer.alloc(0)];
  for (const content of broken) {
    await writeFile(fileOf('ta', 'a'), content);
    expect(await answers.read(row('ta', 'a'))).toBeUndefined();
  }
});

test('a start lists what is there, oldest first and brings it within the budget', async () => {
  await left(await open(), 'ta', 'dacb');
  await left(await open(), 'tb', 'x');
  // As a kill between draft and rename leaves it.
  await mkdir(path.join(folder, '%'));
  const answers = await open({ tenantBytes: 3 * BLOCK });
  expect(answers.size).toBe(4 * BLOCK);
  expect(await kept(answers, 'ta', [...'abcde'])).toBe('abc');
  await answers.keep(row('ta', 'e'), answer('e'));
  expect(await kept(answers, 'ta', [...'abcde'])).toBe('bce');
  await answers.sweep(1_000);
  expect(await kept(answers, 'ta', [...'abcde'])).toBe('e');
  expect(await kept(answers, 'tb', ['x'])).toBe('');
});

test('nobody waits for the list: answers are kept, read and dropped meanwhile, and counted once', async () => {
  await left(await open(), 'ta', 'abcdefgh');
  const answers = new Answers(folder, { ...WIDE, tenantBytes: 4 * BLOCK }, pino({ level: 'silent' }));
  let listed = false;
  const listing = answers.listed.then(() => {
    listed = true;
  });
  expect((await answers.read(row('ta', 'h')))?.body.toString()).toBe('h');
  await Promise.all([answers.drop(row('ta', 'g')), answers.keep(row('ta', 'i'), answer('i'))]);
  await listing;
  expect(listed).toBe(true);
  const found = await kept(answers, 'ta', [...'abcdefghi']);
  // "e" goes where "i" is kept while "g" still counts.
  expect(['efhi', 'fhi']).toContain(found);
  expect(answers.size).toBe(found.length * BLOCK);
});
