/** The entry of the `turnpike` command: runs it and ends the process with its exit code. */
import { readFileSync } from 'node:fs';
import { usePackedPackages } from '../shared/packed-packages.ts';
import { hostCommands } from './host-commands.ts';
import { run } from './run.ts';
import { processDeps } from './session.ts';

const { version } = JSON.parse(readFileSync(new URL('../../package.json', import.meta.url), 'utf8')) as {
  version: string;
};

// Commands load what they need of them.
usePackedPackages();
const deps = processDeps();
process.exitCode = await run(process.argv.slice(2), version, deps, hostCommands(deps));
