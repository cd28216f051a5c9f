/**
 * Passes connections on from one address to another, each `host:port` or the path of a socket. As a program, in a network
 * namespace that shares only files with the test: `relay.ts from to [from to …]`, until its standard input ends.
 */
import { once } from 'node:events';
import { createServer, connect as dial, type Server } from 'node:net';

export async function relay(from: string, to: string): Promise<Server> {
  const server = createServer((one) => {
    const other = dial(optionsOf(to));
    one.pipe(other).pipe(one);
    for (const [here, there] of [
      [one, other],
      [other, one],
    ] as const) {
      here.setNoDelay(true);
      here.on('error', () => there.destroy());
      here.once('close', () => there.destroy());
    }
  });
  await once(server.listen(optionsOf(from)), 'listening');
  return server;
}

function optionsOf(address: string): { path: string } | { host: string; port: number } {
  if (address.includes('/')) return { path: address };
  const at = address.lastIndexOf(':');
  return { host: address.slice(0, at), port: Number(address.slice(at + 1)) };
}

if (import.meta.main) {
  const addresses = process.argv.slice(2);
  for (let at = 0; at < addresses.length; at += 2) await relay(addresses[at] ?? '', addresses[at + 1] ?? '');
  process.stdin.resume().once('end', () => process.exit(0));
  console.log('ready');
}
