/** The entry of the command as a package of its own, as each host serves it: without the commands that run a host. */
import { run } from './run.ts';
import { processDeps } from './session.ts';

/** Of the package; set where it is packed. */
declare const TURNPIKE_VERSION: string;

process.exitCode = await run(process.argv.slice(2), TURNPIKE_VERSION, processDeps());
