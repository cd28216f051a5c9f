/** When domains are looked at, what becomes of them, and who gets one that two tenants claim. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import pino from 'pino';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { DomainChecks } from '../../host/domains/domain-checks.ts';
import { type OwnershipRecords, ownershipToken, type RecordCheck } from '../../host/domains/ownership-record.ts';
import { Deployments } from '../../host/registry/deployments.ts';
import { Domains } from '../../host/registry/domains.ts';
import type { Registry } from '../../host/registry/index.ts';
import { AdjustableClock } from '../../host/shared/clock.ts';
import { newDeployment } from '../registry/support/new-deployment.ts';
import { openTestRegistry } from '../registry/support/open.ts';

const MINUTE = 60_000;
const DAY = 24 * 60 * MINUTE;
const NAME = 'api.example.com';

let folder: string;
let registry: Registry;
let domains: Domains;
let clock: AdjustableClock;
let checks: DomainChecks;
/** Undefined: as the clock says. */
let trustedNow: number | undefined;
/** Whether the DNS does not answer. */
let silent: boolean;
/** Values of the TXT record. */
let record: string[];
let changed: string[];
/** Called in the middle of a look at the DNS. */
let meanwhile: () => Promise<unknown>;

beforeEach(async () => {
  folder = await mkdtemp(path.join(tmpdir(), 'domains-'));
  registry = await openTestRegistry(path.join(folder, 'registry.db'));
  for (const name of ['one', 'two'])
    await new Deployments(registry.db).create(newDeployment({ tenant: name, slug: name }), 0);
  domains = new Domains(registry.db);
  clock = new AdjustableClock(0);
  record = [];
  changed = [];
  trustedNow = undefined;
  silent = false;
  meanwhile = async () => {};
  const records = {
    async check(_domain: string, token: string): Promise<RecordCheck> {
      const found = record.includes(token);
      await meanwhile();
      if (silent) return { found: false, reason: 'no answer', unanswered: true };
      return found ? { found } : { found, reason: 'not there' };
    },
  } as OwnershipRecords;
  checks = new DomainChecks({
    domains,
    records,
    clock,
    trustedNow: async () => trustedNow ?? clock.now(),
    log: pino({ level: 'silent' }),
    registrarTokenHashes: [],
    servesAtOnce: () => false,
    async onChange(_domain, tenant) {
      changed.push(tenant);
    },
  });
});
afterEach(async () => {
  registry.close();
  await rm(folder, { recursive: true, force: true });
});

const due = async () => ((await domains.byName(NAME))?.nextCheckAt ?? 0) - clock.now();

describe('checks', () => {
  it('wait longer each time while the record is missing, at most an hour', async () => {
    await checks.attach(NAME, 'one');
    const waits: number[] = [];
    for (let turn = 0; turn < 8; turn++) {
      waits.push(Math.round((await due()) / MINUTE));
      clock.setOffset(clock.offsetMs + (await due()) + 1);
      await checks.sweep();
    }
    expect(waits).toEqual([1, 2, 4, 8, 16, 32, 60, 60]);
    expect(changed).toEqual([]);
  });

  it('find the record, and look again a day later', async () => {
    record = [ownershipToken(NAME, 'one')];
    expect(await checks.attach(NAME, 'one')).toMatchObject({ state: 'verified', verifiedBy: 'txt', reason: null });
    expect(changed).toEqual(['one']);
    expect(Math.round((await due()) / MINUTE)).toBe(24 * 60);
  });

  it('forgive a record that is back within a week', async () => {
    const own = [ownershipToken(NAME, 'one')];
    record = own;
    await checks.attach(NAME, 'one');
    record = [];
    clock.setOffset(DAY + MINUTE);
    await checks.sweep();
    expect(await domains.byName(NAME)).toMatchObject({ state: 'verified', reason: 'not there' });
    record = own;
    clock.setOffset(3 * DAY);
    await checks.sweep();
    expect(await domains.byName(NAME)).toMatchObject({ state: 'verified', reason: null, failingSince: null });
    expect(changed).toEqual(['one']);
  });
});

it('an outage of the DNS for a month takes no domain out of service, and gives it to nobody', async () => {
  record = [ownershipToken(NAME, 'one')];
  await checks.attach(NAME, 'one');
  silent = true;
  for (let day = 1; day <= 30; day++) {
    clock.setOffset(day * (DAY + MINUTE));
    await checks.sweep();
  }
  expect(await domains.byName(NAME)).toMatchObject({ state: 'verified', failingSince: null, reason: 'no answer' });
  silent = false;
  record = [ownershipToken(NAME, 'two')];
  await expect(checks.attach(NAME, 'two')).rejects.toMatchObject({ code: 'conflict' });
});

describe('a clock that leaps', () => {
  it('ahead by a century and back ends no domain, and no checks', async () => {
    record = [ownershipToken(NAME, 'one')];
    await checks.attach(NAME, 'one');
    record = [];
    clock.setOffset(DAY + MINUTE);
    await checks.sweep();
    trustedNow = clock.now();
    clock.setOffset(36_500 * DAY);
    await checks.sweep();
    await checks.sweep();
    expect(await domains.byName(NAME)).toMatchObject({ state: 'verified' });
    clock.setOffset(DAY + 2 * MINUTE);
    trustedNow = undefined;
    record = [ownershipToken(NAME, 'one')];
    await checks.sweep();
    expect(await domains.byName(NAME)).toMatchObject({ state: 'verified', failingSince: null });
    expect(await due()).toBeLessThanOrEqual(DAY);
  });

  it('while a record is missing does not prolong its time either', async () => {
    record = [ownershipToken(NAME, 'one')];
    await checks.attach(NAME, 'one');
    record = [];
    clock.setOffset(36_500 * DAY);
    await checks.sweep();
    clock.setOffset(2 * DAY);
    await checks.sweep();
    clock.setOffset(10 * DAY);
    await checks.sweep();
    expect(await domains.byName(NAME)).toMatchObject({ state: 'pending' });
  });
});

describe('a domain that two tenants claim', () => {
  it('stays with the first while neither has proved it, and the second is told how to', async () => {
    await checks.attach(NAME, 'one');
    await expect(checks.attach(NAME, 'two')).rejects.toMatchObject({
      code: 'conflict',
      message: expect.stringContaining(ownershipToken(NAME, 'two')),
    });
    expect(await domains.byName(NAME)).toMatchObject({ tenant: 'one' });
  });

  it('goes to the second where that one proves it', async () => {
    await checks.attach(NAME, 'one');
    record = [ownershipToken(NAME, 'two')];
    expect(await checks.attach(NAME, 'two')).toMatchObject({ tenant: 'two', state: 'verified' });
    expect(changed).toEqual(['one', 'two']);
  });

  it('stays with a first that has proved it, whatever the record says now', async () => {
    record = [ownershipToken(NAME, 'one')];
    await checks.attach(NAME, 'one');
    record = [ownershipToken(NAME, 'two')];
    await expect(checks.attach(NAME, 'two')).rejects.toMatchObject({ code: 'conflict' });
    clock.setOffset(DAY + MINUTE);
    await checks.sweep();
    expect(await checks.attach(NAME, 'two'), 'once the first proves it no more').toMatchObject({ tenant: 'two' });
  });

  it('of two who prove it at the same moment, one hears that the other has it', async () => {
    record = [ownershipToken(NAME, 'one'), ownershipToken(NAME, 'two')];
    const second: Promise<unknown>[] = [];
    meanwhile = async () => {
      meanwhile = async () => {};
      second.push(checks.attach(NAME, 'two'));
      await second[0];
    };
    await expect(checks.attach(NAME, 'one')).rejects.toMatchObject({ code: 'conflict' });
    expect(await second[0]).toMatchObject({ tenant: 'two', state: 'verified' });
    expect(await domains.byName(NAME)).toMatchObject({ tenant: 'two', state: 'verified' });
  });

  it('is not given by a proof of the first that comes after it went to the second', async () => {
    const row = await checks.attach(NAME, 'one');
    record = [ownershipToken(NAME, 'one')];
    meanwhile = async () => {
      meanwhile = async () => {};
      await checks.detach(NAME, 'one');
      record = [];
      await checks.attach(NAME, 'two');
    };
    await checks.check(row);
    expect(await domains.byName(NAME)).toMatchObject({ tenant: 'two', state: 'pending' });
    expect(await domains.servableNames()).toEqual([]);
  });
});
