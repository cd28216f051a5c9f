/**
 * Entry of the speech engine process. It reads its settings as one line of JSON on standard input, writes
 * `{"event":"listening","socket":…}` on standard output when it is ready, and ends when standard input does. A second
 * line tells it to finish what it works on, to take nothing new, and to end.
 */
import { once } from 'node:events';
import { rm } from 'node:fs/promises';
import { createInterface } from 'node:readline';
import { Engine } from './engine.ts';
import { createEngineServer } from './server.ts';
import { parseSettings } from './settings.ts';

/** Whatever is still under way then is broken off. */
const DRAIN_MS = 30_000;

const log = (line: object) => process.stderr.write(`${JSON.stringify({ ...line, time: Date.now() })}\n`);

const input = createInterface({ input: process.stdin });
// the supervisor may end while the voices are loaded
let left = false;
input.once('close', () => {
  left = true;
});
const [line] = (await once(input, 'line')) as [string];
const settings = parseSettings(line);
const engine = await Engine.open(settings, log);
if (left) process.exit(0);
const server = createEngineServer(engine, settings.limits, log);

// the socket of an earlier process that was killed
await rm(settings.socket, { force: true });
server.listen(settings.socket);
await once(server, 'listening');
process.stdout.write(`${JSON.stringify({ event: 'listening', socket: settings.socket })}\n`);

let ending = false;
async function end(): Promise<void> {
  if (ending) return;
  ending = true;
  server.close();
  server.closeAllConnections();
  await engine.close();
  process.exit(0);
}
input.once('close', end);
// Another model comes into use: what is under way is finished with this one.
input.once('line', () => {
  server.close(() => void end());
  server.closeIdleConnections();
  setTimeout(end, DRAIN_MS);
});
process.once('SIGTERM', end);
process.once('SIGINT', end);
