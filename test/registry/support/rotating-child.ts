/** Deploys with secrets, changes them and rotates their keys, all at once, until it is killed. Says what it has done. */
import path from 'node:path';
import { setImmediate } from 'node:timers/promises';
import { Deployments } from '../../../host/registry/deployments.ts';
import { openRegistry } from '../../../host/registry/index.ts';
import { SecretBox } from '../../../host/registry/secret-box.ts';
import { Secrets } from '../../../host/registry/secrets.ts';
import { newDeployment } from './new-deployment.ts';

const folder = process.argv[2] ?? '';
const registry = await openRegistry(path.join(folder, 'registry.db'));
const secrets = new Secrets(registry.db, await SecretBox.open(path.join(folder, 'secrets.key')));
const deployments = new Deployments(registry.db);
const say = (line: string) => process.stdout.write(`${line}\n`);

async function deploying(): Promise<void> {
  for (let round = 0; ; round++) {
    // SQLite answers at once: without this nothing would leave the process.
    await setImmediate();
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
    say('rotated');
    await setImmediate();
  }
}

await Promise.all([deploying(), rotating()]);
