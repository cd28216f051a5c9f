/** Deploys with secrets, changes them and rotates their keys, all at once, until it is killed. Says what it has done. */
import { readFile } from 'node:fs/promises';
import path from 'node:path';
import { setImmediate } from 'node:timers/promises';
import { Deployments } from '../../../host/registry/deployments.ts';
import { openRegistry } from '../../../host/registry/index.ts';
import { SecretBox } from '../../../host/registry/secret-box.ts';
import { Secrets } from '../../../host/registry/secrets.ts';
import { newDeployment } from './new-deployment.ts';

/** Deploys at a stretch; then two rotations end, so that one at least has nobody else at work and forgets old keys. */
const STRETCH = 8;

const folder = process.argv[2] ?? '';
const keyFile = path.join(folder, 'secrets.key');
const registry = await openRegistry(path.join(folder, 'registry.db'));
const secrets = new Secrets(registry.db, await SecretBox.open(keyFile));
const deployments = new Deployments(registry.db);
const say = (line: string) => process.stdout.write(`${line}\n`);

let rotations = 0;

async function deploying(): Promise<void> {
  for (let round = 0; ; round++) {
    // SQLite answers at once: without this nothing would leave the process.
    await setImmediate();
    if (round % STRETCH === 0) for (const until = rotations + 2; rotations < until; ) await setImmediate();
    await secrets.keepingKeys(async () => {
      const deployment = newDeployment({ slug: `s${process.pid}-${round}` });
      const sealed = secrets.seal(deployment.tenant, { KEY: `of ${deployment.tenant}` });
      const stored = sealed.map((one) => ({ ...one, sealed: one.sealed.toString('base64') }));
      await deployments.create({ ...deployment, secrets: stored }, 0);
      say(`deployed ${deployment.tenant}`);
    });
  }
}

async function rotating(): Promise<void> {
  for (;;) {
    say('rotating');
    await secrets.rotate();
    rotations += 1;
    const { keys } = JSON.parse(await readFile(keyFile, 'utf8')) as { keys: object };
    say(Object.keys(keys).length === 1 ? 'forgot' : 'rotated');
    await setImmediate();
  }
}

await Promise.all([deploying(), rotating()]);
