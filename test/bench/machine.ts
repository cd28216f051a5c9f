/** What kind of machine this is, by what a hello costs bare workerd: ratios differ from kind to kind (README.md). */

import { WARM_UP_SECONDS } from './compare.ts';
import { load } from './load.ts';
import { bareWorkerd } from './peers/workerd.ts';
import { round } from './table.ts';
import { HELLO } from './workers.ts';

/** Up to so many µs of CPU a hello. */
const KINDS: [most: number, name: string][] = [
  [35, 'quick'],
  [82, 'middle'],
  [Number.POSITIVE_INFINITY, 'slow'],
];

/** `middle kind (bare workerd: 55.2 µs a hello)` */
export async function machineKind(): Promise<string> {
  const subject = await bareWorkerd(HELLO).start();
  try {
    const url = `${subject.origin}/`;
    await load({ url, seconds: WARM_UP_SECONDS }, subject.pids());
    const { cpuMicros } = await load({ url, seconds: 2 }, subject.pids());
    const [, name] = KINDS.find(([most]) => cpuMicros <= most) ?? [];
    return `${name} kind (bare workerd: ${round(cpuMicros)} µs a hello)`;
  } finally {
    await subject.stop();
  }
}
