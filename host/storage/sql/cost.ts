/**
 * What a statement reads and writes, in D1's rows_read and rows_written. libSQL counts both inside but does not hand
 * them out, so they are taken from the program SQLite compiled (EXPLAIN), once per prepared statement, together with
 * what it does tell: rows changed and full-scan steps. COMPATIBILITY.md says where that differs from D1.
 */

export interface Cost {
  /** Rows written for each row changed: the table's and one per index touched. */
  writesPerChange: number;
  /** Loops over a whole table or index: how far they went has to be asked for. */
  scans: boolean;
  /** `count(*)` of a whole table: its answer is what was read. */
  counts: boolean;
  /** Looks up rows by key or index range. */
  seeks: boolean;
  /** Has no loop over anything but its own scratch rows: its time does not grow with the data. */
  brief: boolean;
}

export const NO_COST: Cost = { writesPerChange: 1, scans: false, counts: false, seeks: false, brief: false };

/** Columns of EXPLAIN's rows. */
const OPCODE = 1;
const P1 = 2;
const P5 = 6;
const FULL_SCAN_STEP = 1;
/** Loops that are not over a table's rows. */
const LOOPS = new Set(['VNext', 'VFilter', 'SorterNext', 'InitCoroutine', 'RowSetRead', 'Clear', 'Count']);
const OPENS_EPHEMERAL = new Set(['OpenEphemeral', 'OpenAutoindex', 'OpenPseudo', 'SorterOpen']);

/** @param program the rows of EXPLAIN */
export function costOf(program: readonly (readonly unknown[])[]): Cost {
  const written = new Set<unknown>();
  const ephemeral = new Set<unknown>();
  let deletes = false;
  const cost: Cost = { ...NO_COST, brief: true };
  // Programs open some cursors at their end, which is run first.
  for (const row of program) if (OPENS_EPHEMERAL.has(String(row[OPCODE]))) ephemeral.add(row[P1]);
  for (const row of program) {
    const cursor = row[P1];
    if (LOOPS.has(String(row[OPCODE]))) cost.brief = false;
    switch (row[OPCODE]) {
      case 'Insert':
      case 'IdxInsert':
        if (!ephemeral.has(cursor)) written.add(cursor);
        break;
      case 'Delete':
        deletes = true;
        // The queue of a recursive query.
        if (ephemeral.has(cursor)) cost.brief = false;
        break;
      case 'Next':
      case 'Prev':
        if (!ephemeral.has(cursor)) cost.brief = false;
        if (Number(row[P5]) === FULL_SCAN_STEP && !ephemeral.has(cursor)) cost.scans = true;
        break;
      case 'VNext':
        cost.scans = true;
        break;
      case 'Count':
        cost.counts = true;
        break;
      case 'SeekRowid':
      case 'NotExists':
      case 'SeekGE':
      case 'SeekGT':
      case 'SeekLE':
      case 'SeekLT':
      case 'Found':
      case 'DeferredSeek':
        cost.seeks = true;
        break;
    }
  }
  cost.writesPerChange = Math.max(1, written.size);
  if (deletes && written.size === 0) cost.writesPerChange = 1;
  return cost;
}
