/** When certificates are obtained, renewed and given up, against an authority of the test's own. */
import { execFileSync } from 'node:child_process';
import { mkdir, mkdtemp, readdir, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import pino from 'pino';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { AuthorityError } from '../../host/certificates/authority.ts';
import { CertificateRenewer, type RenewerDeps } from '../../host/certificates/renewer.ts';
import { dueAt, nextTry } from '../../host/certificates/schedule.ts';
import { folderStore } from '../../host/certificates/store.ts';
import { AdjustableClock } from '../../host/shared/clock.ts';

const DAY = 86_400_000;
const MINUTE = 60_000;

/** A real certificate of 90 days. */
const PEM = execFileSync(
  'openssl',
  [
    'req',
    '-x509',
    '-newkey',
    'ec',
    '-pkeyopt',
    'ec_paramgen_curve:P-256',
    '-nodes',
    '-days',
    '90',
    '-subj',
    '/CN=x',
    '-keyout',
    '-',
    '-out',
    '-',
  ],
  { stdio: ['ignore', 'pipe', 'ignore'] },
).toString();

let folder: string;
let clock: AdjustableClock;
let issued: string[];
let failing: Error | undefined;
let wanted: string[];
let changed: string[];
let outcomes: string[];
let renewers: CertificateRenewer[];

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'renewer-'));
  clock = new AdjustableClock();
  [issued, wanted, changed, outcomes, renewers] = [[], ['a.test', 'b.test'], [], [], []];
  failing = undefined;
});

afterEach(async () => {
  await Promise.all(renewers.map((renewer) => renewer.stop()));
  await rm(folder, { recursive: true, force: true });
});

async function started(changes: Partial<RenewerDeps> = {}): Promise<CertificateRenewer> {
  const renewer = new CertificateRenewer({
    store: folderStore(folder),
    turn: (work) => work(),
    clock,
    log: pino({ level: 'silent' }),
    authority: {
      issue: async (name) => {
        issued.push(name);
        if (failing) throw failing;
        return PEM;
      },
    },
    wanted: async () => wanted,
    changed: async (name) => {
      changed.push(name);
    },
    outcome: async (name, { reason }) => {
      outcomes.push(`${name} ${reason ?? 'ok'}`);
    },
    ...changes,
  });
  renewers.push(renewer);
  await renewer.start();
  await renewer.settled();
  return renewer;
}

async function at(renewer: CertificateRenewer, offsetMs: number): Promise<void> {
  clock.setOffset(offsetMs);
  await renewer.settled();
}

test('every wanted name gets one, once', async () => {
  const renewer = await started();
  expect(issued.sort()).toEqual(['a.test', 'b.test']);
  expect(changed.sort()).toEqual(['a.test', 'b.test']);
  expect(renewer.has('a.test')).toBe(true);
  expect(renewer.has('c.test')).toBe(false);
  renewer.wake();
  await renewer.settled();
  expect(issued).toHaveLength(2);
  expect((await readdir(folder)).sort()).toEqual(['a.test.pem', 'b.test.pem']);
  expect(await readFile(join(folder, 'a.test.pem'), 'utf8')).toBe(PEM);
});

test('it is renewed at two thirds of its life, and not before', async () => {
  wanted = ['a.test'];
  const renewer = await started();
  await at(renewer, 59 * DAY);
  expect(issued).toHaveLength(1);
  await at(renewer, 60.1 * DAY);
  expect(issued).toHaveLength(2);
});

test('an answer that is no certificate does not take the place of one that serves', async () => {
  wanted = ['a.test'];
  const answers = [PEM];
  const renewer = await started({ authority: { issue: async () => answers.shift() ?? 'nothing' } });
  await at(renewer, 61 * DAY);
  expect(renewer.has('a.test')).toBe(true);
  expect(outcomes.at(-1)).not.toBe('a.test ok');
  expect(await readFile(join(folder, 'a.test.pem'), 'utf8')).toBe(PEM);
});

test('one that is due again at once is asked for once an hour', async () => {
  wanted = ['a.test'];
  clock.setOffset(70 * DAY);
  const renewer = await started();
  for (let minute = 1; minute < 60; minute++) await at(renewer, 70 * DAY + minute * MINUTE);
  expect(issued).toHaveLength(1);
  await at(renewer, 70 * DAY + 61 * MINUTE);
  expect(issued).toHaveLength(2);
});

test('what is in the folder survives a restart', async () => {
  const first = await started();
  await first.stop();
  const second = await started();
  expect(issued).toHaveLength(2);
  expect(second.has('b.test')).toBe(true);
});

test('a name that is not wanted any more is forgotten at once', async () => {
  const renewer = await started();
  wanted = ['b.test'];
  renewer.wake();
  await renewer.settled();
  expect(await readdir(folder)).toEqual(['b.test.pem']);
  expect(changed).toContain('a.test');
  expect(renewer.has('a.test')).toBe(false);
});

test('a name that was detached while others were obtained is not asked for', async () => {
  const renewer = await started({
    wanted: (() => {
      let calls = 0;
      return async () => (calls++ === 0 ? ['a.test'] : []);
    })(),
  });
  expect(issued).toEqual([]);
  expect(renewer.has('a.test')).toBe(false);
});

describe('failures', () => {
  test('are told, backed off, and lose nothing', async () => {
    wanted = ['a.test'];
    failing = new AuthorityError('the authority is away');
    const renewer = await started();
    expect(outcomes).toEqual(['a.test the authority is away']);
    expect(renewer.status('a.test')).toMatchObject({ failures: 1, reason: 'the authority is away' });
    await at(renewer, 30_000);
    expect(issued).toHaveLength(1);
    await at(renewer, MINUTE + 1_000);
    expect(issued).toHaveLength(2);
    failing = undefined;
    await at(renewer, 60 * MINUTE);
    expect(renewer.status('a.test')).toMatchObject({ failures: 0, reason: undefined });
    expect(await readdir(folder)).toEqual(['a.test.pem']);
  });

  test('of a renewal leave the old certificate in service', async () => {
    wanted = ['a.test'];
    const renewer = await started();
    failing = new AuthorityError('away');
    await at(renewer, 61 * DAY);
    expect(renewer.has('a.test')).toBe(true);
    expect(renewer.status('a.test')?.reason).toBe('away');
    await at(renewer, 91 * DAY);
    expect(renewer.has('a.test')).toBe(false);
  });

  test('are remembered over a restart', async () => {
    wanted = ['a.test'];
    failing = new AuthorityError('slow down', 3_600_000);
    await (await started()).stop();
    const renewer = await started();
    expect(issued).toHaveLength(1);
    expect(renewer.status('a.test')).toMatchObject({ failures: 1, reason: 'slow down' });
    await at(renewer, 59 * MINUTE);
    expect(issued).toHaveLength(1);
    await at(renewer, 61 * MINUTE);
    expect(issued).toHaveLength(2);
  });

  test('can be retried at once by the operator', async () => {
    wanted = ['a.test'];
    failing = new AuthorityError('no');
    const renewer = await started();
    failing = undefined;
    renewer.retry('a.test');
    await renewer.settled();
    expect(renewer.has('a.test')).toBe(true);
  });
});

test('the next try comes later each time, within a day, and as late as the authority asks', () => {
  expect([1, 2, 3, 30].map((failures) => nextTry(failures, 0, 0))).toEqual([MINUTE, 2 * MINUTE, 4 * MINUTE, DAY]);
  expect(nextTry(1, 0, 7 * DAY)).toBe(7 * DAY);
  // Neither an authority nor a clock that was ahead ends all tries.
  expect(nextTry(1, 0, 3650 * DAY)).toBe(7 * DAY);
  expect(dueAt({ validFrom: undefined, validTo: undefined, nextTryAt: 3650 * DAY } as never, 0)).toBe(0);
});

test('a wildcard is due like any other', () => {
  const state = { name: '*.x', validFrom: 0, validTo: 90, failures: 0, reason: undefined, nextTryAt: undefined };
  expect(dueAt(state, 0)).toBe(60);
  expect(dueAt({ ...state, nextTryAt: 70 }, 0)).toBe(70);
  expect(dueAt({ ...state, validTo: undefined }, 0)).toBe(0);
});

describe('a folder that takes no more files', () => {
  test('a certificate that could not be kept is not said to be there, and is kept once there is room', async () => {
    wanted = ['a.test'];
    // Stands for a full disk.
    await mkdir(join(folder, 'a.test.pem'));
    const renewer = await started();
    expect(renewer.has('a.test')).toBe(false);
    // No half of a key stays beside it.
    expect((await readdir(folder)).sort()).toEqual(['a.test.json', 'a.test.pem']);
    await rm(join(folder, 'a.test.pem'), { recursive: true });
    await at(renewer, 2 * MINUTE);
    expect(renewer.has('a.test')).toBe(true);
    expect(await readFile(join(folder, 'a.test.pem'), 'utf8')).toBe(PEM);
    // The order is kept, so the authority gives the same certificate again (hostile-authority.test.ts).
    expect(issued).toEqual(['a.test', 'a.test']);
  });

  test('failures that could not be noted are told, and hold up no other name', async () => {
    wanted = ['a.test', 'b.test', 'c.test'];
    failing = new Error('no');
    for (const name of wanted) await mkdir(join(folder, `${name}.json`));
    await started();
    expect(issued.toSorted()).toEqual(wanted);
    expect(outcomes.toSorted()).toEqual(wanted.map((name) => `${name} no`));
  });
});
