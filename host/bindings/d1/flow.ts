/**
 * How often the parts of a SQLite program run, worked out from what SQLite does tell of a run. What enters a block of
 * instructions leaves it: with that, the figures that are known after a run often determine one that is not. A formula
 * for it is made once from the program; where it stays open, the likeliest of what is open is assumed.
 */

/** What is known after a run, in the order of a formula's coefficients. */
export const KNOWN = ['one', 'some', 'rows', 'changes', 'scans', 'sorts', 'autoindex', 'steps'] as const;
export type Known = (typeof KNOWN)[number];
/** Those that have to be asked for. */
const COUNTERS = KNOWN.slice(4);
/** Factor of each known figure. */
export type Formula = Float64Array;

/** By name: known ones, wanted ones, and such as are zero after every run. */
export type Figures = Record<string, number>;

export interface Instruction {
  /** Each time it runs. */
  figures: Figures;
  /** Where it may go on: addresses, each with figures of its own. Empty: the program ends here. */
  ways: { to: number; figures?: Figures }[];
}

/** Larger programs are not worked out: it would take too long. */
const MAX_WAYS = 80;
const TINY = 1e-7;

/**
 * @param zero figures that are zero after every run
 * @param likely figures that are taken for zero as far as that is needed, in this order: before it is asked for counters,
 *   and after
 * @param some what such a figure is less, where the statement answers or changes anything
 * @param guesses the same for `read` alone, when all else does not determine it
 * @returns formulas for the figures `read` and `written`; none for what is not determined, and for programs that are too large
 */
export function formulas(
  program: readonly Instruction[],
  zero: readonly string[],
  likely: readonly [string[], string[]],
  guesses: readonly string[],
  some: (name: string) => number,
): { read?: Formula | undefined; written?: Formula | undefined } {
  // Instructions that are always followed by the next one, and it by nothing else, are one block.
  const entered = new Set<number>([0]);
  for (const [at, { ways }] of program.entries())
    if (ways.length !== 1 || ways[0]?.to !== at + 1) for (const { to } of ways) entered.add(to).add(at + 1);
  const blockOf: number[] = [];
  let blocks = 0;
  for (let at = 0; at < program.length; at++) {
    if (at > 0 && entered.has(at)) blocks++;
    blockOf.push(blocks);
  }
  const ways = program.flatMap(({ ways }, from) =>
    ways
      .filter(({ to }) => blockOf[to] !== blockOf[from] || to <= from)
      .map(({ to, figures }) => ({ from, to, figures: figures ?? {} })),
  );
  if (ways.length > MAX_WAYS) return {};
  const inside = Array.from({ length: blocks + 1 }, (): Figures => ({}));
  for (const [at, { figures }] of program.entries()) addTo(inside[blockOf[at] as number] as Figures, figures);

  /** Ways, then known figures: a row is a sum that is 0. */
  const row = (): Float64Array => new Float64Array(ways.length + KNOWN.length);
  const figure = (name: string): Float64Array => {
    const sum = row();
    for (const [index, { to, figures }] of ways.entries())
      sum[index] = (figures[name] ?? 0) + (inside[blockOf[to] as number]?.[name] ?? 0);
    // The first block is entered once from outside.
    sum[ways.length] = inside[0]?.[name] ?? 0;
    return sum;
  };
  const basis: { sum: Float64Array; at: number }[] = [];
  const reduce = (sum: Float64Array): number => {
    for (const { sum: known, at } of basis) {
      const factor = sum[at] as number;
      if (factor === 0) continue;
      for (let index = 0; index < sum.length; index++) add(sum, index, -(factor * (known[index] as number)));
      sum[at] = 0;
    }
    let largest = -1;
    for (let index = 0; index < ways.length; index++)
      if (Math.abs(sum[index] as number) > Math.max(TINY, Math.abs(sum[largest] ?? 0))) largest = index;
    return largest;
  };
  const learn = (sum: Float64Array): void => {
    const at = reduce(sum);
    if (at < 0) return;
    const factor = sum[at] as number;
    basis.push({ sum: sum.map((value) => value / factor), at });
  };

  for (let block = 0; block <= blocks; block++) {
    const sum = row();
    let ends = false;
    for (const [index, { from, to }] of ways.entries()) {
      if (blockOf[to] === block) add(sum, index, 1);
      if (blockOf[from] === block) add(sum, index, -1);
    }
    for (const [at, { ways: out }] of program.entries()) if (blockOf[at] === block && out.length === 0) ends = true;
    if (block === 0) add(sum, ways.length, 1);
    if (!ends) learn(sum);
  }
  for (const name of zero) learn(figure(name));
  const measure = (names: readonly string[]): void => {
    for (const name of names) {
      const sum = figure(name);
      add(sum, ways.length + KNOWN.indexOf(name as (typeof KNOWN)[number]), -1);
      learn(sum);
    }
  };
  const assume = (name: string): void => {
    const sum = figure(name);
    add(sum, ways.length + KNOWN.indexOf('some'), some(name));
    learn(sum);
  };
  const solve = (name: string): Formula | undefined => {
    const sum = figure(name);
    return reduce(sum) < 0 ? sum.slice(ways.length) : undefined;
  };
  measure(['rows', 'changes']);
  // To ask for counters costs more than a lookup does: without a scan they are left to the last.
  const scans = ways.some(({ figures }) => figures.scans !== undefined);
  if (scans) measure(COUNTERS);
  likely[0].forEach(assume);
  measure(COUNTERS);
  likely[1].forEach(assume);
  const written = solve('written');
  guesses.forEach(assume);
  return { read: solve('read'), written };
}

function addTo(sum: Figures, figures: Figures): void {
  for (const [name, value] of Object.entries(figures)) sum[name] = (sum[name] ?? 0) + value;
}

function add(sum: Float64Array, index: number, value: number): void {
  sum[index] = (sum[index] ?? 0) + value;
}
