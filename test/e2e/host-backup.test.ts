/** The operator's backup of a whole host by the command, while its tenants write: on demand, by schedule, and back again. */
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { deploy, mppFetch } from './support/callers.ts';
import { startHost, type TestHost } from './support/host.ts';
import { turnpike } from './support/turnpike-command.ts';
import { until } from './support/until.ts';

const SLUGS = ['backup-a', 'backup-b'];
const KINDS = ['kv', 'd1', 'r2'] as const;
const HOUR_MS = 3_600_000;

/** Numbers are written one after the other, so a moment of a store is all of them up to one. */
const HANDLER = `
const value = (id) => id + ':' + 'x'.repeat(id % 10 === 0 ? 100_000 : id % 2_000);
const all = async (store) => {
  const names = [];
  for (let cursor; ; ) {
    const page = await store.list({ cursor });
    names.push(...(page.keys ?? page.objects).map((one) => one.name ?? one.key));
    if (page.list_complete ?? !page.truncated) return names.map(Number).sort((a, b) => a - b);
    cursor = page.cursor;
  }
};
const whole = async (ids, read) => {
  for (const [index, id] of ids.entries()) {
    if (id !== index || (await read(String(id))) !== value(id)) return 'broken at ' + id;
  }
  return ids.length;
};
export default {
  async fetch(request, env) {
    const url = new URL(request.url);
    const id = Number(url.searchParams.get('id'));
    switch (url.pathname) {
      case '/setup':
        await env.DB.exec('CREATE TABLE t (id INTEGER PRIMARY KEY, value TEXT)');
        return new Response('ready');
      case '/kv': await env.STORE.put(String(id), value(id)); return new Response('kept');
      case '/r2': await env.BUCKET.put(String(id), value(id)); return new Response('kept');
      case '/d1':
        await env.DB.prepare('INSERT INTO t VALUES (?, ?)').bind(id, value(id)).run();
        return new Response('kept');
    }
    const { results } = await env.DB.prepare('SELECT id FROM t ORDER BY id').all();
    return Response.json({
      secret: env.SECRET,
      kv: await whole(await all(env.STORE), (key) => env.STORE.get(key)),
      r2: await whole(await all(env.BUCKET), async (key) => (await env.BUCKET.get(key))?.text()),
      d1: await whole(results.map((row) => row.id), (key) =>
        env.DB.prepare('SELECT value FROM t WHERE id = ?').bind(Number(key)).first('value')),
    });
  },
};
`;

type Counts = Record<string, Record<(typeof KINDS)[number], number>>;

let folder: string;
let flags: Record<string, string>;
let host: TestHost;
beforeAll(async () => {
  folder = mkdtempSync(path.join(tmpdir(), 'tp-backup-'));
  const passphrase = path.join(folder, 'passphrase');
  writeFileSync(passphrase, 'a passphrase for a test\n', { mode: 0o600 });
  flags = {
    'log-level': 'error',
    'backup-passphrase-file': passphrase,
    'backup-target': path.join(folder, 'scheduled'),
    'backup-schedule': '0 * * * *',
    'backup-keep': '2',
  };
  host = await startHost({ flags });
  const owner = mppFetch(host.network, 0);
  for (const slug of SLUGS) {
    await deploy(owner, host.url, {
      slug,
      code: HANDLER,
      secrets: { SECRET: `secret of ${slug}` },
      bindings: { kv: true, d1: true, r2: true },
    });
    expect(await (await fetch(`${host.url}/${slug}/setup`)).text()).toBe('ready');
  }
});
afterAll(async () => {
  await host?.stop();
  rmSync(folder, { recursive: true, force: true });
});

const command = (...args: string[]) => turnpike(['--json', ...args], { cwd: folder });
const backups = (of: string) =>
  existsSync(path.join(folder, of)) ? readdirSync(path.join(folder, of)).filter((name) => /^\d{4}-/.test(name)) : [];

describe('a backup while tenants write', () => {
  const target = () => path.join(folder, 'backups');
  let before: Counts;
  let after: Counts;

  it('is made by the command, and writes go on meanwhile', async () => {
    const counts: Counts = Object.fromEntries(SLUGS.map((slug) => [slug, { kv: 0, d1: 0, r2: 0 }]));
    let over = false;
    const writers = SLUGS.flatMap((slug) =>
      KINDS.map(async (kind) => {
        const count = counts[slug];
        while (!over && count) {
          const answer = await fetch(`${host.url}/${slug}/${kind}?id=${count[kind]}`);
          expect(await answer.text()).toBe('kept');
          count[kind] += 1;
        }
      }),
    );
    const least = () => Math.min(...Object.values(counts).flatMap((count) => Object.values(count)));
    await until(() => least() > 50);
    before = structuredClone(counts);
    const made = await command('--data', host.data, 'backup', target());
    after = structuredClone(counts);
    over = true;
    await Promise.all(writers);
    expect(made.stderr).toBe('');
    expect(made.code).toBe(0);
    expect(made.json().location).toBe(path.join(target(), backups('backups')[0] ?? ''));
    for (const slug of SLUGS) expect(after[slug]?.kv).toBeGreaterThan(before[slug]?.kv ?? 0);
  });

  it('comes back on an empty box: every store of every tenant as of a moment within its time', async () => {
    const data = path.join(folder, 'restored');
    const file = flags['backup-passphrase-file'] ?? '';
    const restored = await command('--data', data, 'restore', target(), '--passphrase-file', file);
    expect(restored.stderr).toBe('');
    const other = await startHost({ data, flags: { ...flags, 'backup-schedule': '' } });
    try {
      for (const slug of SLUGS) {
        const state = (await (await fetch(`${other.url}/${slug}/`)).json()) as Record<string, unknown>;
        expect(state.secret).toBe(`secret of ${slug}`);
        for (const kind of KINDS) {
          expect(state[kind], `${slug} ${kind}`).toBeGreaterThanOrEqual(before[slug]?.[kind] ?? 0);
          // One more may have been written and not yet answered.
          expect(state[kind], `${slug} ${kind}`).toBeLessThanOrEqual((after[slug]?.[kind] ?? 0) + 1);
        }
      }
      // Its owner is still its owner.
      const owner = mppFetch(other.network, 0);
      expect((await owner(`${other.url}/_admin/session/${SLUGS[0]}`, { method: 'POST' })).status).toBe(201);
    } finally {
      await other.stop();
    }
  });

  it('is sealed with the passphrase that the command names, not the one that is configured', async () => {
    const own = path.join(folder, 'own-passphrase');
    writeFileSync(own, 'another passphrase for a test\n', { mode: 0o600 });
    const elsewhere = path.join(folder, 'own');
    const made = await command('--data', host.data, 'backup', elsewhere, '--passphrase-file', 'own-passphrase');
    expect(made.stderr).toBe('');
    const restore = (data: string, file: string) =>
      command('--data', path.join(folder, data), 'restore', elsewhere, '--passphrase-file', file);
    expect((await restore('by-own', own)).code).toBe(0);
    const refused = await restore('by-configured', flags['backup-passphrase-file'] ?? '');
    expect(refused.code).not.toBe(0);
    expect(refused.stderr + refused.stdout).toMatch(/passphrase/);
  });

  it('is not called damaged where the disk is full that it comes back to', async () => {
    const small = path.join(folder, 'small');
    mkdirSync(small, { recursive: true });
    const args = ['--data', path.join(small, 'data'), 'restore', target(), '--passphrase-file', 'passphrase'];
    const { code, stderr } = await turnpike(args, { cwd: folder, smallDisk: { folder: small, size: '64k' } });
    expect(code).not.toBe(0);
    expect(stderr).toMatch(/^turnpike: The backup needs \d+ bytes, and .*small has 65536 left\. Make room/);
  });

  it('that is damaged is refused whole', async () => {
    const [id = ''] = backups('backups');
    const manifest = JSON.parse(readFileSync(path.join(target(), id, 'manifest.json'), 'utf8'));
    const text = JSON.stringify(manifest);
    const registry = path.join(target(), id, 'files', 'registry.db');
    expect(text).toContain('files/registry.db');
    const bytes = readFileSync(registry);
    const at = bytes.length >> 1;
    bytes[at] = (bytes[at] ?? 0) ^ 1;
    writeFileSync(registry, bytes);
    const data = path.join(folder, 'refused');
    const file = flags['backup-passphrase-file'] ?? '';
    const { code, stderr, stdout } = await command('--data', data, 'restore', target(), '--passphrase-file', file);
    expect(code).not.toBe(0);
    expect(stderr + stdout).toMatch(/The backup is damaged: files\/registry\.db/);
    expect(readdirSync(folder)).not.toContain('refused');
  });
});

describe('backups by schedule', () => {
  it('are made each time, and only the newest are kept', async () => {
    const seen = new Set<string>();
    for (let round = 1; round <= 3; round++) {
      await host.advance(HOUR_MS);
      const made = await until(
        () => backups('scheduled').find((name) => !seen.has(name)),
        () => host.output(),
      );
      seen.add(made);
      // They are named by the second.
      await until(() => new Date().toISOString().slice(0, 19).replaceAll(':', '-') > made.slice(0, 19));
    }
    await until(() => backups('scheduled').length === 2);
    expect(backups('scheduled').sort()).toEqual([...seen].sort().slice(1));
  });
});
