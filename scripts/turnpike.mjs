#!/usr/bin/env node
// The `turnpike` command, from wherever it is called: prepares what is missing, then runs host/cli/main.ts.
import { launch } from './launch.mjs';

await launch({ entry: 'host/cli/main.ts', args: process.argv.slice(2) });
