// `npm run bench -- [--rows hello,kv-get] [--compare | --against <folder>]`: everything side by side with its peers.
import { launch } from './launch.mjs';

await launch({ entry: 'test/bench/main.ts', args: process.argv.slice(2), development: true });
