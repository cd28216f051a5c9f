/** Moves a box into a cluster or out of it, and stands still at the line of progress that it is told: to be killed there. */
import { loadConfig } from '../../host/supervisor/configuration.ts';
import { moveBoxIn } from '../../host/supervisor/moving-in.ts';
import { moveClusterOut } from '../../host/supervisor/moving-out.ts';

const [direction = '', folder = '', stopAt = ''] = process.argv.slice(2);
const config = loadConfig({ folder, env: process.env, flags: [] });
const say = (line: string) => {
  if (!line.includes(stopAt)) return;
  process.send?.(line);
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0);
};
await (direction === 'in' ? moveBoxIn : moveClusterOut)(config, folder, say);
