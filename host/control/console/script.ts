/** The console's script: it logs in by a link, follows logs, and asks before what cannot be undone. All else needs none. */
import { readFileSync } from 'node:fs';

export const CONSOLE_SCRIPT = readFileSync(new URL('console.js', import.meta.url), 'utf8');
