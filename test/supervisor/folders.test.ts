import {
  chmodSync,
  cpSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readlinkSync,
  rmSync,
  statSync,
  symlinkSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { openFolders } from '../../host/supervisor/folders.ts';

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'folders-'));
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

it('makes what is missing, for this user alone', () => {
  const { data, run } = openFolders(join(folder, 'data'));
  expect(run).toBe(join(data, 'run'));
  for (const made of [data, run, join(data, 'tenants')]) expect(statSync(made).mode & 0o777).toBe(0o700);
});

describe('sockets of a deep data folder', () => {
  let deep: string;
  const made = new Set<string>();
  const open = () => {
    const { run } = openFolders(deep);
    made.add(run);
    return run;
  };
  beforeEach(() => {
    deep = join(folder, 'deep'.repeat(20));
  });
  afterEach(() => {
    for (const run of made) rmSync(run, { recursive: true, force: true });
    made.clear();
  });

  it('are below the temporary folder, in the same place from start to start', () => {
    const run = open();
    expect(run.length).toBeLessThanOrEqual(50);
    expect(statSync(run).mode & 0o777).toBe(0o700);
    expect(readlinkSync(join(deep, 'run'))).toBe(run);
    expect(open()).toBe(run);
  });

  it('are elsewhere when that place is gone, is a link or is open to others', () => {
    const first = open();
    rmSync(first, { recursive: true });
    const second = open();
    expect(second).not.toBe(first);

    chmodSync(second, 0o755);
    const third = open();
    expect(third).not.toBe(second);

    rmSync(third, { recursive: true });
    symlinkSync(folder, third);
    expect(open()).not.toBe(third);
    rmSync(third);
  });

  it('are not shared with a copy of the data folder', () => {
    const run = open();
    const original = deep;
    deep = `${deep}-copy`;
    cpSync(original, deep, { recursive: true, verbatimSymlinks: true });
    expect(readlinkSync(join(deep, 'run'))).toBe(run);
    expect(open()).not.toBe(run);
  });

  it('take the place of a folder that a shallow data folder had', () => {
    mkdirSync(join(deep, 'run', 'old'), { recursive: true });
    open();
    expect(lstatSync(join(deep, 'run')).isSymbolicLink()).toBe(true);
  });
});
