// `npm run soak -- [--cluster] [--minutes 10] [--seed 1] [--pace 50]`: mixed load while every process of the host is killed
// in turn, or everything around three nodes.
import { launch } from './launch.mjs';

await launch({ entry: 'test/soak/main.ts', args: process.argv.slice(2), development: true });
