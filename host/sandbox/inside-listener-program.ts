/** Started by inside-listener.ts within a sandbox's network namespace: listens, sends the socket to its parent, and ends. */
import { createServer } from 'node:net';

const server = createServer().listen({ host: '0.0.0.0', port: Number(process.argv[2]) }, () => {
  // It must not accept itself, so it ends as soon as the parent has it.
  process.send?.('listening', server, {}, () => process.exit(0));
});
