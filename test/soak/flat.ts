/**
 * `npm run soak -- --flat [--requests 1000000] [--paid 100000] [--refused 10000]`: many requests, paid calls and refused
 * credentials, each kind after the other. Shows what each process of the host holds after each, once its garbage is
 * collected. Ends with 1 if one of them grew, or a call was not answered as it has to be.
 */
import { randomBytes } from 'node:crypto';
import { collectGarbage } from '../bench/garbage.ts';
import { load } from '../bench/load.ts';
import { privateOf } from '../bench/processes.ts';
import { deploy, mppFetch, mppSessionFetch } from '../e2e/support/callers.ts';
import { MB } from '../e2e/support/flooding.ts';
import { startHost } from '../e2e/support/host.ts';
import { ownProcesses } from './own-processes.ts';

/** A process may hold this much more than before. */
const GROWTH_BYTES = 20 * MB;
/**
 * What the first calls compile and fill is not growth: this share of each kind comes before the first look. viem remembers
 * 8,192 addresses, and each refused payment names another.
 */
const WARM_UP = { requests: 0.05, paid: 0.05, refused: 1 };
const LANES = [0, 1, 2, 3];
const REFUSED_AT_ONCE = 16;
const LOAD_SECONDS = 10;

export interface FlatSoak {
  requests: number;
  paid: number;
  refused: number;
}

/** @returns the number of faults */
export async function flatSoak(wanted: FlatSoak): Promise<number> {
  const host = await startHost({ flags: { 'log-level': 'silent' } });
  try {
    const origin = `${host.url}/flat`;
    await deploy(mppFetch(host.network, 0), host.url, {
      slug: 'flat',
      code: `export default { fetch: () => new Response('good morning') }`,
      paidRoutes: [
        { method: 'GET', path: '/fixed', price: '0.001' },
        { method: 'GET', path: '/metered', price: '0.00001', mode: 'metered' },
      ],
    });
    let faults = 0;
    const fault = (text: string): void => {
      faults += 1;
      if (faults <= 20) console.log(`fault: ${text}`);
    };
    const sessions = await Promise.all(LANES.map((lane) => mppSessionFetch(host.network, 4 + lane)));
    const challenge = await fetch(`${origin}/fixed`);
    const { accepts } = JSON.parse(Buffer.from(challenge.headers.get('payment-required') ?? '', 'base64').toString());

    const kinds: [name: keyof FlatSoak, run: (count: number) => Promise<void>][] = [
      [
        'requests',
        async (count) => {
          for (let done = 0; done < count; ) {
            const { perSecond, errors } = await load({ url: `${origin}/`, seconds: LOAD_SECONDS }, []);
            if (errors > 0) fault(`${errors} requests failed`);
            done += perSecond * LOAD_SECONDS;
          }
        },
      ],
      [
        'paid',
        async (count) => {
          await inLanes(LANES.length, count, async (lane) => {
            const answer = await sessions[lane]?.(`${origin}/metered`);
            if ((await answer?.text()) !== 'good morning') fault(`a paid call was answered ${answer?.status}`);
          });
        },
      ],
      [
        'refused',
        async (count) => {
          await inLanes(REFUSED_AT_ONCE, count, async () => {
            const headers = { 'payment-signature': forged(accepts[0]) };
            const answer = await fetch(`${origin}/fixed`, { headers });
            await answer.arrayBuffer();
            if (answer.status !== 402) fault(`a forged payment was answered ${answer.status}`);
          });
        },
      ],
    ];
    for (const [name, run] of kinds) await run(Math.ceil(wanted[name] * WARM_UP[name]));
    await collectGarbage(host.pid);
    const before = held(host.pid);
    for (const [name, run] of kinds) {
      const from = performance.now();
      await run(wanted[name]);
      const seconds = Math.round((performance.now() - from) / 1000);
      await collectGarbage(host.pid);
      const now = held(host.pid);
      const changes = [...before].map(([pid, { name: process, bytes }]) => {
        const grown = (now.get(pid)?.bytes ?? 0) - bytes;
        if (!now.has(pid)) fault(`${process} has ended`);
        if (grown > GROWTH_BYTES) fault(`${process} holds ${megabytes(grown)} more after ${wanted[name]} ${name}`);
        return `${process} ${megabytes(bytes)} ${grown < 0 ? '-' : '+'} ${megabytes(Math.abs(grown))}`;
      });
      console.log(`${wanted[name]} ${name} in ${seconds} s: ${changes.join(', ')}`);
    }
    return faults;
  } finally {
    await host.stop();
  }
}

/** Calls `work` so many times, from several at once. */
async function inLanes(lanes: number, count: number, work: (lane: number) => Promise<void>): Promise<void> {
  let begun = 0;
  await Promise.all(
    Array.from({ length: lanes }, async (_, lane) => {
      while (begun++ < count) await work(lane);
    }),
  );
}

/** An x402 payment that is right in all but its signature, and like no other. */
function forged(accepted: { payTo: string; amount: string }): string {
  const hex = (bytes: number) => `0x${randomBytes(bytes).toString('hex')}`;
  const authorization = {
    from: hex(20),
    to: accepted.payTo,
    value: accepted.amount,
    validAfter: '0',
    validBefore: String(Math.floor(Date.now() / 1000) + 60),
    nonce: hex(32),
  };
  const payload = { signature: `${hex(64)}1b`, authorization };
  return Buffer.from(JSON.stringify({ x402Version: 2, accepted, payload })).toString('base64');
}

function held(root: number): Map<number, { name: string; bytes: number }> {
  return new Map([...ownProcesses(root)].map(([pid, name]) => [pid, { name, bytes: privateOf(pid) }]));
}

function megabytes(bytes: number): string {
  return `${Math.round(bytes / MB)} MB`;
}
