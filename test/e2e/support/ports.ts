/**
 * Ports of loopback that stay a test's own while nobody listens on them: between a kill and the restart, or until a
 * program that is given its port has started. Port 0 would not do there: any other test's server may get it meanwhile.
 */
import { readFileSync } from 'node:fs';
import { createServer } from 'node:net';

const LOWEST = 12_000;
/** Test runners have this many workers at most; each has its own part of the ports. */
const WORKERS = 8;
/** Where the kernel's choice begins for listeners on port 0 and for callers; best effort where it begins very low. */
const KERNELS_CHOICE = Math.max(
  Number(readFileSync('/proc/sys/net/ipv4/ip_local_port_range', 'utf8').split('\t')[0]),
  LOWEST + 1_000 * WORKERS,
);

const size = Math.floor((KERNELS_CHOICE - LOWEST) / WORKERS);
const first = LOWEST + (Number(process.env.VITEST_POOL_ID ?? 0) % WORKERS) * size;
// Somewhere in between: what another run left a moment ago may still be on its way down.
let next = Math.floor(Math.random() * size);

/** @throws Error when all are taken */
export async function freePort(): Promise<number> {
  for (let tries = 0; tries < size; tries++) {
    const port = first + (next++ % size);
    if (await isFree(port)) return port;
  }
  throw new Error(`no port from ${first} to ${first + size} is free`);
}

function isFree(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const server = createServer();
    server.once('error', () => resolve(false));
    // On all addresses, whichever of them it is wanted for.
    server.listen(port, () => server.close(() => resolve(true)));
  });
}
