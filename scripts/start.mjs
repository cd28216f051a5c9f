// `npm start -- [--port 0] [--install-system] …`: prepares what is missing, then runs the host.
import { hostProcess, launch, prepare } from './launch.mjs';
import { installSystemPackages } from './system-packages.mjs';

const args = process.argv.slice(2);
if (args.includes('--install-system')) await Promise.all([prepare(), installSystemPackages(['run'])]);

await launch({
  entry: 'host/main.ts',
  args: args.filter((arg) => arg !== '--install-system'),
  ...hostProcess(),
});
