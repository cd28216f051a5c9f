/**
 * What a statement reads and writes, in D1's rows_read and rows_written. D1 takes both from counters that libSQL has,
 * too, but does not hand out. So they are worked out from the program SQLite compiled (EXPLAIN), once per prepared
 * statement, and from what it does tell of a run: rows, changes, steps. COMPATIBILITY.md says where that is not exact.
 * What counts: https://github.com/cloudflare/workerd/tree/main/patches/sqlite, "row counts".
 */
import { type Figures, type Formula, formulas, type Instruction, KNOWN } from './flow.ts';

export interface Cost {
  /** undefined: what it answers and changes is told instead. */
  read: Formula | undefined;
  written: Formula | undefined;
  /** Rows written for each row changed, where there is no formula: the table's and one per index touched. */
  writesPerChange: number;
  /** A formula needs SQLite's counters of the statement. */
  counters: boolean;
  /** `count(*)` of whole tables: its answer was read, too. */
  counts: boolean;
  /** Has no loop over anything but its own scratch rows: its time does not grow with the data. */
  brief: boolean;
}

export const NO_COST: Cost = {
  read: new Float64Array(KNOWN.length),
  written: undefined,
  writesPerChange: 1,
  counters: false,
  counts: false,
  brief: false,
};

/** A row of EXPLAIN. */
interface Operation {
  opcode: string;
  p1: number;
  p2: number;
  p3: number;
  p5: number;
}

/** Larger programs are not worked out: it would take too long. */
const MAX_OPERATIONS = 300;
/** Bits of p5. */
const COUNTS_AS_CHANGE = 1;
const OPENED_FOR_EQUAL = 2;
/** p5 of a loop: which counter of the statement its steps are in. */
const COUNTERS: Record<number, 'scans' | 'autoindex'> = { 1: 'scans', 3: 'autoindex' };
/** Loops that are not over a table's rows. */
const LOOPS = new Set(['VNext', 'VFilter', 'SorterNext', 'InitCoroutine', 'RowSetRead', 'Clear', 'Count']);
const OPENS_EPHEMERAL = new Set(['OpenEphemeral', 'OpenAutoindex', 'OpenPseudo', 'OpenDup', 'SorterOpen']);
/** Go on at p2 or at the next one. */
const BRANCHES = new Set(
  (
    'Once If IfNot IsType IsNull NotNull Ne Eq Gt Le Lt Ge ElseEq IfNullRow SeekLT SeekLE SeekGE SeekGT SeekScan ' +
    'IfNotOpen IfNoHope NoConflict NotFound Found SeekRowid NotExists Last IfSmaller SorterSort Sort Rewind SorterNext ' +
    'Prev Next IdxLE IdxGT IdxLT IdxGE RowSetRead RowSetTest FkIfZero IfPos IfNotZero DecrJumpZero VFilter VNext ' +
    'Filter MustBeInt IncrVacuum'
  ).split(' '),
);
const READS = new Set(['SeekRowid', 'NotExists', 'Last', 'Rewind', 'Sort', 'SorterSort', 'VNext']);

/** @param program the rows of EXPLAIN */
export function costOf(program: readonly (readonly unknown[])[]): Cost {
  const operations = program.map(([, opcode, p1, p2, p3, , p5]): Operation => {
    return { opcode: String(opcode), p1: Number(p1), p2: Number(p2), p3: Number(p3), p5: Number(p5) };
  });
  const ephemeral = new Set<number>();
  const forEqual = new Set<number>();
  // Programs open some cursors at their end, which is run first.
  for (const { opcode, p1, p5 } of operations) {
    if (OPENS_EPHEMERAL.has(opcode)) ephemeral.add(p1);
    if (opcode.startsWith('Open') && (p5 & OPENED_FOR_EQUAL) !== 0) forEqual.add(p1);
  }
  const has = (opcode: string): boolean => operations.some((operation) => operation.opcode === opcode);
  const brief = !operations.some(
    ({ opcode, p1 }) =>
      LOOPS.has(opcode) ||
      // The queue of a recursive query.
      (opcode === 'Delete' && ephemeral.has(p1)) ||
      ((opcode === 'Next' || opcode === 'Prev') && !ephemeral.has(p1)),
  );
  const filled = operations.filter(({ opcode, p1 }) => /^(Idx)?Insert$/.test(opcode) && !ephemeral.has(p1));
  const writesPerChange = Math.max(1, new Set(filled.map(({ p1 }) => p1)).size);
  const cost: Cost = { ...NO_COST, read: undefined, writesPerChange, counters: true, counts: has('Count'), brief };
  // The programs of triggers and of foreign keys' actions follow the statement's own.
  if (has('Program') || operations.length > MAX_OPERATIONS) return cost;
  const instructions = operations.map((operation, at): Instruction => {
    const ways = waysOf(operations, at, { ephemeral, forEqual }).filter(({ to }) => !isError(operations[to]));
    return { figures: figuresOf(operation, at, ephemeral), ways };
  });
  const names = new Set(
    instructions.flatMap(({ figures, ways }) =>
      [figures, ...ways.map((way) => way.figures ?? {})].flatMap(Object.keys),
    ),
  );
  for (const name of names) {
    // These are 1 in all where they come about at all.
    if (name.startsWith('once ') || name.startsWith('single ')) (instructions[0] as Instruction).figures[name] = -1;
    // As many rows are kept as are answered.
    if (name.startsWith('limit rows ')) for (const { figures } of instructions) if (figures.rows) figures[name] = -1;
  }
  const named = (...kinds: string[]): string[] =>
    kinds.flatMap((kind) => [...names].filter((name) => name.startsWith(kind)));
  const { read, written } = formulas(
    instructions,
    named('call '),
    [named('once ', 'kept ', 'empty ', 'limit ', 'single ', 'stop '), named('none ', 'missing ', 'distinct ')],
    named('rest '),
    // What is looked up once is found where there is an answer, and a range is left behind its last row.
    (name) => (name.startsWith('single ') ? 1 : name.startsWith('stop ') ? -1 : 0),
  );
  const counters = KNOWN.indexOf('scans');
  return {
    ...cost,
    read,
    // Whole tables are emptied in one step, whose changes are as many as the rows.
    written: has('Clear') ? undefined : written,
    counters: !read || [read, written].some((formula) => formula?.slice(counters).some((factor) => factor !== 0)),
  };
}

/** @param known figures of a run in the order of KNOWN */
export function rowsRead({ read }: Cost, known: readonly number[]): number {
  const figure = (name: (typeof KNOWN)[number]): number => known[KNOWN.indexOf(name)] ?? 0;
  const least = read ? figure('scans') : Math.max(figure('scans'), figure('rows'), figure('changes'));
  return Math.max(least, evaluate(read, known));
}

/** @param known figures of a run in the order of KNOWN */
export function rowsWritten({ written, writesPerChange }: Cost, known: readonly number[]): number {
  const changes = known[KNOWN.indexOf('changes')] ?? 0;
  return written ? Math.max(changes, evaluate(written, known)) : changes * writesPerChange;
}

function evaluate(formula: Formula | undefined, known: readonly number[]): number {
  return Math.round(formula?.reduce((sum, factor, index) => sum + factor * (known[index] ?? 0), 0) ?? 0);
}

/** A statement that ends there has failed. */
function isError(operation: Operation | undefined): boolean {
  return operation?.opcode === 'Halt' && operation.p1 !== 0;
}

function figuresOf({ opcode, p1, p2, p5 }: Operation, at: number, ephemeral: ReadonlySet<number>): Figures {
  const figures: Figures = { steps: 1 };
  switch (opcode) {
    case 'ResultRow':
      figures.rows = 1;
      break;
    case 'Sort':
    case 'SorterSort':
      figures.sorts = 1;
      break;
    case 'SorterInsert':
    case 'RowSetAdd':
      figures[`kept ${p1}`] = 1;
      break;
    case 'Gosub':
      figures[`call ${at}`] = 1;
      break;
    case 'Insert':
    case 'IdxInsert':
    case 'Delete': {
      const changes = ((opcode === 'Delete' ? p2 : p5) & COUNTS_AS_CHANGE) !== 0;
      if (changes && !ephemeral.has(p1)) figures.changes = 1;
      if (!ephemeral.has(p1)) figures.written = opcode !== 'Delete' || changes ? 1 : 0;
      else if (opcode !== 'Delete') figures[`${opcode === 'IdxInsert' ? 'distinct' : 'kept'} ${p1}`] = 1;
      break;
    }
    case 'VUpdate':
      figures.changes = 1;
      figures.written = 1;
  }
  if (READS.has(opcode)) figures.read = 1;
  return figures;
}

/** With figures that say what is likely: what was kept is taken out again, tables are not empty, what is sought is there. */
function waysOf(
  operations: readonly Operation[],
  at: number,
  { ephemeral, forEqual }: { ephemeral: ReadonlySet<number>; forEqual: ReadonlySet<number> },
): Instruction['ways'] {
  const { opcode, p1, p2, p3, p5 } = operations[at] as Operation;
  const next = { to: at + 1 };
  switch (opcode) {
    case 'Halt':
      return [];
    case 'Init':
    case 'Goto':
    case 'Gosub':
      return [{ to: p2 }];
    case 'InitCoroutine':
      return [p2 > 0 ? { to: p2 } : next];
    case 'Jump':
      return [...new Set([p1, p2, p3])].map((to) => ({ to }));
    case 'Return': {
      const back = calls(operations, p1).map((call) => ({ to: call + 1, figures: { [`call ${call}`]: -1 } }));
      return p3 === 1 ? [...back, next] : back;
    }
    case 'Yield':
    case 'EndCoroutine':
      return coroutineWays(operations, at);
  }
  if (!BRANCHES.has(opcode) || p2 === 0 || p2 === at + 1) return [next];
  switch (opcode) {
    case 'Next':
    case 'Prev':
    case 'SorterNext': {
      const counter = opcode === 'SorterNext' ? undefined : COUNTERS[p5];
      const figures = { read: 1, ...takenOut(operations, p1, ephemeral), ...(counter ? { [counter]: 1 } : {}) };
      return [next, { to: p2, figures }];
    }
    case 'Sort':
    case 'SorterSort':
    case 'Rewind':
      return [
        { ...next, figures: takenOut(operations, p1, ephemeral) },
        { to: p2, figures: { [`empty ${at}`]: 1 } },
      ];
    case 'RowSetRead':
      return [{ ...next, figures: { [`kept ${p1}`]: -1 } }, { to: p2 }];
    case 'SeekLT':
    case 'SeekLE':
    case 'SeekGE':
    case 'SeekGT':
      // One for equal keys counts only when it finds one, and leaves out the comparison behind it.
      return [
        { to: at + (forEqual.has(p1) ? 2 : 1), figures: { read: 1 } },
        {
          to: p2,
          figures: {
            read: forEqual.has(p1) ? 0 : 1,
            [`${loopsOf(operations, at).length > 0 ? 'none' : 'single'} ${at}`]: 1,
          },
        },
      ];
    case 'Once':
      return [{ ...next, figures: { [`once ${at}`]: 1 } }, { to: p2 }];
    case 'IfNotZero':
      return [next, { to: p2, figures: { [`limit rows ${at}`]: 1 } }];
    case 'DecrJumpZero':
      // LIMIT 1, as in EXISTS, ends at the first row.
      if (
        operations.some(({ opcode, p1: value, p2: register }) => opcode === 'Integer' && register === p1 && value === 1)
      )
        return [{ ...next, figures: { [`limit ${at}`]: 1 } }, { to: p2 }];
      return [next, { to: p2, figures: { [`limit ${at}`]: 1 } }];
    case 'MustBeInt':
      return [next, { to: p2, figures: { [`limit ${at}`]: 1 } }];
    case 'FkIfZero':
      return [{ ...next, figures: { [`limit ${at}`]: 1 } }, { to: p2 }];
    case 'SeekRowid':
    case 'NotExists':
    case 'NotFound':
      return [next, { to: p2, figures: { [`missing ${at}`]: 1 } }];
    case 'IsNull':
      return [next, { to: p2, figures: { [`${loopsOf(operations, at).length > 0 ? 'missing' : 'limit'} ${at}`]: 1 } }];
  }
  return [next, { to: p2, figures: { [`${endsOnlyLoop(operations, at) ? 'stop' : 'rest'} ${at}`]: 1 } }];
}

/** What comes out of a sorter or of a table of its own was put in before. */
function takenOut(operations: readonly Operation[], cursor: number, ephemeral: ReadonlySet<number>): Figures {
  if (!ephemeral.has(cursor)) return {};
  const unique = operations.some(({ opcode, p1 }) => opcode === 'IdxInsert' && p1 === cursor);
  return { [`${unique ? 'distinct' : 'kept'} ${cursor}`]: -1 };
}

const BACK = new Set(['Goto', 'Next', 'Prev', 'VNext', 'SorterNext']);

/** Addresses from which a way back leads around it: the ends of its loops. */
function loopsOf(operations: readonly Operation[], at: number): number[] {
  return operations.flatMap(({ opcode, p2 }, from) =>
    from > at && p2 <= at && p2 > 1 && BACK.has(opcode) ? [from] : [],
  );
}

/** A comparison of keys that ends the only loop around it, as behind the last row of a range. */
function endsOnlyLoop(operations: readonly Operation[], at: number): boolean {
  const { opcode, p2 } = operations[at] as Operation;
  const [end, ...more] = loopsOf(operations, at);
  return /^(Idx)?[LG][TEte]$/.test(opcode) && end !== undefined && more.length === 0 && p2 > end;
}

/** Addresses of the calls of the subroutine whose way back is in that register. */
function calls(operations: readonly Operation[], register: number): number[] {
  return operations.flatMap(({ opcode, p1 }, at) => (opcode === 'Gosub' && p1 === register ? [at] : []));
}

/** Where the two sides of a coroutine give way to each other. */
function coroutine(operations: readonly Operation[], register: number) {
  const start = operations.findIndex(({ opcode, p1 }) => opcode === 'InitCoroutine' && p1 === register);
  const first = operations[start]?.p3 ?? 0;
  const last = operations.findIndex(({ opcode, p1 }) => opcode === 'EndCoroutine' && p1 === register);
  const yields = operations.flatMap(({ opcode, p1 }, at) => (opcode === 'Yield' && p1 === register ? [at] : []));
  const isInside = (at: number): boolean => at >= first && at <= last;
  return { first, last, inside: yields.filter(isInside), outside: yields.filter((at) => !isInside(at)) };
}

function coroutineWays(operations: readonly Operation[], at: number): Instruction['ways'] {
  const { opcode, p1 } = operations[at] as Operation;
  const { first, inside, outside } = coroutine(operations, p1);
  if (opcode === 'EndCoroutine') return outside.map((yielding) => ({ to: operations[yielding]?.p2 ?? 0 }));
  if (inside.includes(at)) return outside.map((yielding) => ({ to: yielding + 1 }));
  return [{ to: first }, ...inside.map((yielding) => ({ to: yielding + 1 }))];
}
