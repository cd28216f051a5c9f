/**
 * What somebody does who has the key of a node: holds many connections to other nodes, asks all that can be asked, and
 * sends what nobody asked for. Runs in a network namespace that shares only files with the test: what to do is in the file
 * that is named. Each time that changes it says how many connections have been held for a second. It makes no more of them
 * once anything comes by its standard input, and ends with that.
 */
import { readFileSync } from 'node:fs';
import { setTimeout as pause } from 'node:timers/promises';
import type { CertifiedKey } from '../../../host/peers/authority.ts';
import { PeerLinks } from '../../../host/peers/links.ts';

export interface Theft {
  authority: string;
  own: CertifiedKey;
  /** By their numbers. */
  targets: { node: number; host: string; port: number }[];
  /** First lines of connections, in turn. */
  purposes: string[];
  /** Connections to each at a time. */
  each: number;
}

/** Before one that was ended is made again, ms. */
const AGAIN_MS = 200;
/** What stands for less was turned away. */
const HELD_MS = 1_000;
const BETWEEN_MS = 100;
const NOISE = Buffer.alloc(16_384, 'noise ');

if (import.meta.main) {
  const { authority, own, targets, purposes, each } = JSON.parse(readFileSync(process.argv[2] ?? '', 'utf8')) as Theft;
  const links = new PeerLinks({
    authority,
    own,
    admits: () => true,
    addressOf: (node) => targets.find((target) => target.node === node),
    onConnection: (_purpose, stream) => stream.destroy(),
  });
  let held = 0;
  let comes = true;
  const hold = async (node: number, purpose: string): Promise<void> => {
    while (comes) {
      const stream = links.dial(node, purpose);
      const ended = new Promise<void>((resolve) => stream.once('close', resolve));
      stream.on('error', () => undefined).resume();
      const begun = performance.now();
      let isHeld = false;
      const talk = setInterval(() => {
        if (!stream.writableNeedDrain) stream.write(NOISE);
        if (isHeld || performance.now() - begun < HELD_MS) return;
        isHeld = true;
        tell(1);
      }, BETWEEN_MS);
      await ended;
      clearInterval(talk);
      if (isHeld) tell(-1);
      await pause(AGAIN_MS);
    }
  };
  const tell = (more: number) => {
    held += more;
    console.log(held);
  };
  process.stdin.once('data', () => (comes = false)).once('end', () => process.exit(0));
  for (const { node } of targets)
    for (let at = 0; at < each; at++) void hold(node, purposes[at % purposes.length] ?? '');
}
