/** What each kind of the host's own processes keeps in memory, garbage collected, and how much that grew in a row. */
import type { TestHost } from '../e2e/support/host.ts';
import { collectGarbage } from './garbage.ts';
import { commandOf, privateOf, processTree } from './processes.ts';
import { type Figure, judge, round, type Target } from './table.ts';

const MB = 1e6;
const PARTS: [name: string, program: RegExp][] = [
  ['edge', /edge\/main/],
  ['storage', /store-process/],
];

export async function sample(host: TestHost, subject: string): Promise<Figure> {
  await collectGarbage(host.pid);
  const pids = processTree([host.pid]);
  const ofProgram = (program: RegExp) =>
    pids.filter((pid) => program.test(commandOf(pid))).reduce((sum, pid) => sum + privateOf(pid), 0);
  const parts: [string, number][] = [
    ['supervisor', privateOf(host.pid)],
    ...PARTS.map(([name, program]): [string, number] => [name, ofProgram(program)]),
  ];
  return { subject, cells: Object.fromEntries(parts.map(([name, bytes]) => [name, round(bytes / MB)])) };
}

/** What is compiled and kept once is there in the second figure: of the start, and after the first calls. */
export function growth(figures: Figure[]): Target[] {
  return Object.keys(figures[0]?.cells ?? {}).map((part) =>
    judge(`${part}: grown since the first calls, MB`, '≤ 20', [
      Number(figures.at(-1)?.cells[part]) - Number(figures[1]?.cells[part]),
    ]),
  );
}
