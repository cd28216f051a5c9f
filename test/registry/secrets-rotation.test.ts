import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { expect, test } from 'vitest';
import { Deployments } from '../../host/registry/deployments.ts';
import { openRegistry } from '../../host/registry/index.ts';
import { SecretBox } from '../../host/registry/secret-box.ts';
import { Secrets } from '../../host/registry/secrets.ts';
import { newDeployment } from './support/new-deployment.ts';
import { isPostgres, openTestRegistry } from './support/open.ts';

const CHILD = fileURLToPath(new URL('support/rotating-child.ts', import.meta.url));

test('secrets of a deploy that is being paid survive a rotation', async () => {
  const folder = await mkdtemp(path.join(tmpdir(), 'tp-rot-'));
  const registry = await openTestRegistry(path.join(folder, 'registry.db'));
  try {
    const secrets = new Secrets(registry.db, await SecretBox.open(path.join(folder, 'keys.json')));
    const tenant = 't0000000000000000000a' as never;
    // As endpoints/deploy.ts prepares it: kept with the payment until the chain has spoken.
    const prepared = secrets
      .seal(tenant, { API_KEY: 'k' })
      .map(({ name, keyId, sealed }) => ({ name, keyId, sealed: sealed.toString('base64') }));
    await registry.client.execute({
      sql: `INSERT INTO payments (id, credential_id, credential_hash, rail, kind, name, scope, asset, payer, payer_did, recipient, pay_to, custody, authorized, state, terms, prepared, created_at, updated_at)
        VALUES ('pay_1','c','h','tempo/charge','operation','deploy','operation:deploy','a','p','d','r','t','direct',1,'settling','{}',?,0,0)`,
      args: [JSON.stringify({ secrets: prepared })],
    });
    await secrets.rotate();
    await new Deployments(registry.db).create(
      {
        tenant,
        slug: 'a',
        owner: 'o',
        ownerDid: 'o',
        code: { digest: 'd', bytes: 1, handlers: [] },
        secrets: prepared,
        termMs: 1,
        settings: {
          compatibilityDate: '2026-01-01',
          compatibilityFlags: [],
          vars: {},
          assets: null,
          bindings: {} as never,
          crons: [],
          paidRoutes: [],
          payTo: 'p',
          notify: null,
        },
      },
      0,
    );
    expect(await secrets.reveal(tenant)).toEqual({ API_KEY: 'k' });
    await registry.client.execute(`UPDATE payments SET state = 'answered', prepared = NULL`);
    expect(await secrets.rotate()).toBe(1);
    expect(await secrets.reveal(tenant)).toEqual({ API_KEY: 'k' });
  } finally {
    registry.close();
    await rm(folder, { recursive: true });
  }
});

test('a deploy whose payment is verified keeps the keys, also before its secrets are beside the payment', async () => {
  const folder = await mkdtemp(path.join(tmpdir(), 'tp-rot-'));
  const registry = await openTestRegistry(path.join(folder, 'registry.db'));
  try {
    const secrets = new Secrets(registry.db, await SecretBox.open(path.join(folder, 'keys.json')));
    const deployment = newDeployment();
    await registry.client.execute({
      sql: `INSERT INTO payments (id, credential_id, credential_hash, rail, kind, name, scope, asset, payer, payer_did, recipient, pay_to, custody, authorized, state, terms, prepared, created_at, updated_at)
        VALUES ('pay_1','c','h','tempo/charge','operation','deploy','operation:deploy','a','p','d','r','t','direct',1,'verified','{}',NULL,0,0)`,
      args: [],
    });
    const sealed = secrets.seal(deployment.tenant, { API_KEY: 'k' });
    await secrets.rotate();
    const stored = sealed.map((one) => ({ ...one, sealed: one.sealed.toString('base64') }));
    await new Deployments(registry.db).create({ ...deployment, secrets: stored }, 0);
    expect(await secrets.reveal(deployment.tenant)).toEqual({ API_KEY: 'k' });
  } finally {
    registry.close();
    await rm(folder, { recursive: true });
  }
});

test('rotations at once lose no key', async () => {
  const folder = await mkdtemp(path.join(tmpdir(), 'tp-rot-'));
  const registry = await openTestRegistry(path.join(folder, 'registry.db'));
  try {
    const secrets = new Secrets(registry.db, await SecretBox.open(path.join(folder, 'keys.json')));
    const { tenant } = await new Deployments(registry.db).create(newDeployment(), 0);
    for (const { name, keyId, sealed } of secrets.seal(tenant, { A: '1', B: '2', C: '3' })) {
      await registry.client.execute({
        sql: 'INSERT INTO secrets (tenant, name, key_id, sealed) VALUES (?, ?, ?, ?)',
        args: [tenant, name, keyId, sealed],
      });
    }
    await Promise.all([secrets.rotate(), secrets.rotate(), secrets.rotate()]);
    const again = new Secrets(registry.db, await SecretBox.open(path.join(folder, 'keys.json')));
    expect(await again.reveal(tenant)).toEqual({ A: '1', B: '2', C: '3' });
  } finally {
    registry.close();
    await rm(folder, { recursive: true });
  }
});

const ROUNDS = Number(process.env.ROTATION_ROUNDS ?? 3);

// Its children share a folder.
test.skipIf(isPostgres)(
  'rotations that are killed anywhere, under deploys, leave every secret readable',
  async () => {
    const folder = await mkdtemp(path.join(tmpdir(), 'tp-rot-'));
    const keyFile = path.join(folder, 'secrets.key');
    const deployed: string[] = [];
    const done = { rotated: 0, forgot: 0 };
    let unfinished = 0;
    try {
      for (let round = 0; round < ROUNDS; round++) {
        const child = spawn(process.execPath, [CHILD, folder], { stdio: ['ignore', 'pipe', 'inherit'] });
        const lines = createInterface({ input: child.stdout });
        let rotating = false;
        // At a random step after a rotation of this round has forgotten the old keys, and a random while into it.
        let left = 1 + Math.floor(Math.random() * 40);
        let forgot = false;
        lines.on('line', (line) => {
          const [what, tenant] = line.split(' ');
          if (tenant !== undefined) deployed.push(tenant);
          if (what === 'rotated' || what === 'forgot') done[what] += 1;
          if (what !== 'deployed') rotating = what === 'rotating';
          forgot ||= what === 'forgot';
          if (forgot) left -= 1;
          if (left === 0) setTimeout(() => child.kill('SIGKILL'), Math.random() * 20);
        });
        const [[, signal]] = await Promise.all([once(child, 'exit'), once(lines, 'close')]);
        expect(signal).toBe('SIGKILL');
        if (rotating) unfinished += 1;
        const registry = await openRegistry(path.join(folder, 'registry.db'));
        try {
          const secrets = new Secrets(registry.db, await SecretBox.open(keyFile));
          const readable = async () => {
            for (const tenant of deployed)
              expect(await secrets.reveal(tenant as never)).toEqual({ KEY: `of ${tenant}` });
          };
          await readable();
          if (round < ROUNDS - 1) continue;
          await secrets.rotate();
          await readable();
          expect(Object.keys(JSON.parse(await readFile(keyFile, 'utf8')).keys)).toHaveLength(1);
        } finally {
          registry.close();
        }
      }
      expect(done.forgot).toBeGreaterThanOrEqual(ROUNDS);
      expect(deployed.length).toBeGreaterThanOrEqual(ROUNDS);
      console.log(JSON.stringify({ rounds: ROUNDS, ...done, unfinished, deployed: deployed.length }));
    } finally {
      await rm(folder, { recursive: true });
    }
  },
  30_000 + ROUNDS * 10_000,
);
