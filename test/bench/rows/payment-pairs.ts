/**
 * The row `payments` with `--against`: the hosts of both checkouts at once, each on a chain of its own, and in turn round
 * by round. Peers say nothing of a change, and whole runs in turn took three times as long for half as many pairs.
 */
import path from 'node:path';
import type { Fetch } from '../../e2e/support/callers.ts';
import { requestSocket, type TestHost } from '../../e2e/support/host.ts';
import { load } from '../load.ts';
import type { OtherCheckout, Worker } from '../pairs.ts';
import { type PaymentChain, startPaymentChain } from '../peers/payment-chain.ts';
import { turnpike } from '../peers/turnpike.ts';
import type { Subject } from '../subject.ts';
import { callsOf, PAID_ROUTES, prepaidWays, railsOf, SHOP } from './payments.ts';

const ROUNDS = 5;
const SECONDS = 2;
/** For both at once; the first rail compiles most of what the others use. */
const WARM_UP_SECONDS = 6;

interface Side {
  chain: PaymentChain;
  subject: Subject;
}

interface Way {
  name: string;
  url: string;
  lanes: Fetch[];
}

export async function paymentPairs(other: OtherCheckout): Promise<void> {
  const chains = await Promise.all([startPaymentChain(), startPaymentChain()]);
  const subjects: Subject[] = [];
  try {
    for (const [index, chain] of chains.entries())
      subjects.push(await (index === 0 ? other.starter(workerOn(chain)) : oursOn(chain)).start());
    await measure(
      other,
      chains.map((chain, index): Side => ({ chain, subject: subjects[index] as Subject })),
    );
  } finally {
    await subjects[1]?.stop();
    await other.stop();
    await Promise.all(chains.map((chain) => chain.stop()));
  }
}

function workerOn({ options }: PaymentChain): Required<Worker> {
  return {
    code: SHOP,
    bindings: {},
    options: { ...options, builtins: ['pay'], deployment: { paidRoutes: PAID_ROUTES } },
  };
}

function oursOn(chain: PaymentChain) {
  const { code, bindings, options } = workerOn(chain);
  return turnpike(code, bindings, options);
}

async function measure(other: OtherCheckout, sides: Side[]): Promise<void> {
  const unpaid = ({ subject }: Side, seconds: number) =>
    load({ url: `${subject.origin}/paid`, seconds }, subject.pids()).then(({ cpuMicros }) => cpuMicros / 1000);
  await record(other, 'unpaid 402', sides, unpaid);
  const ways = await Promise.all(sides.map(waysOf));
  for (const [index, { name }] of (ways[0] ?? []).entries())
    await record(other, name, sides, async ({ subject }, seconds) => {
      const way = ways[sides.findIndex((side) => side.subject === subject)]?.[index] as Way;
      return (await callsOf({ ...way, pids: subject.pids() }, seconds)).cpuMillis;
    });
}

async function record(
  other: OtherCheckout,
  name: string,
  [before, now]: Side[],
  cpuMillis: (side: Side, seconds: number) => Promise<number>,
): Promise<void> {
  const sides = [before, now] as [Side, Side];
  await Promise.all(sides.map((side) => cpuMillis(side, WARM_UP_SECONDS)));
  const rounds: [number[], number[]] = [[], []];
  for (let round = 0; round < ROUNDS; round++)
    for (const index of [0, 1] as const) rounds[index].push(await cpuMillis(sides[index], SECONDS));
  other.add('payments', `${name}: CPU ms a call`, rounds[1], rounds[0], false);
}

/** Each kind of paid call of a host. */
async function waysOf({ chain, subject }: Side): Promise<Way[]> {
  const rails = await Promise.all(
    railsOf(chain.network).map(async ({ name, path: at, lanes }) => ({
      name,
      url: subject.origin + at,
      lanes: await lanes(subject.origin + at),
    })),
  );
  const operator: TestHost['operator'] = (method, at, body) =>
    requestSocket(path.join(chain.options.data, 'run', 'operator.sock'), method, at, body);
  return [...rails, ...(await prepaidWays({ url: new URL(subject.origin).origin, operator }, 'bench'))];
}
