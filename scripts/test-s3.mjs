// `npm run test:s3 -- [--install-system] [file …]`: the object storage suites on a real S3, Ceph's radosgw on loopback.
// Its Debian packages have to be installed; where they are not, it says so and ends with 3. Last line as in `npm test`.
import { spawnSync } from 'node:child_process';
import { prepare } from './launch.mjs';
import { installPackages } from './system-packages.mjs';
import { nameFailed, nameRetried, runTests, TRIES } from './vitest.mjs';

const PACKAGES = ['radosgw', 'ceph-mon', 'ceph-osd', 'ceph-base'];

const args = process.argv.slice(2);
const installed = () =>
  ['radosgw', 'ceph-mon', 'ceph-osd'].every((name) => spawnSync(name, ['--version'], { stdio: 'ignore' }).status === 0);

if (args.includes('--install-system') && !installed()) await installPackages(PACKAGES);
if (!installed()) {
  console.error(
    `skipped: the S3 tests need Ceph. Run: apt-get install --no-install-recommends ${PACKAGES.join(' ')} (about 430 MB)`,
  );
  process.exit(3);
}
const node = await prepare({ development: true });
const { passed, failed, names, retried } = await runTests(
  node,
  ['s3'],
  args.filter((arg) => !arg.startsWith('--')),
  TRIES,
);
nameRetried(retried);
nameFailed(names);
console.log(`\n${passed} passed, ${failed} failed`);
process.exit(failed > 0 || passed === 0 ? 1 : 0);
