#!/usr/bin/env node
// The `turnpike` command, from wherever it is called: prepares what is missing, then runs host/cli/main.ts.
import { hostProcess, launch } from './launch.mjs';

const args = process.argv.slice(2);
await launch({ entry: 'host/cli/main.ts', args, ...(args.includes('up') ? hostProcess() : {}) });
