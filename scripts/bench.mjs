// `npm run bench -- [--rows hello,kv-get] [--compare | --against <folder>] [--install-system]`: everything side by side
// with its peers. `--install-system` installs the load generators and the peers, as root on Debian or Ubuntu.
import { launch, prepare } from './launch.mjs';
import { installSystemPackages } from './system-packages.mjs';

const args = process.argv.slice(2);
const others = args.filter((arg) => arg !== '--install-system');
if (others.length < args.length)
  await Promise.all([prepare({ development: true }), installSystemPackages(['run', 'test'])]);
await launch({ entry: 'test/bench/main.ts', args: others, development: true });
