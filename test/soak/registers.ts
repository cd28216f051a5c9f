/**
 * Whether what callers saw of a register is what one copy of it would have shown them, each call at one moment between its
 * begin and its end (linearizability). Every value is written once, so each read names its write, and the test is exact
 * and quick: Gibbons and Korach, Testing Shared Memories, 1997.
 */

export interface Operation {
  kind: 'write' | 'read';
  /** undefined: nothing was there. */
  value: number | undefined;
  begin: number;
  /** Infinity of a write that was not acknowledged: it may take place at any time, or never. */
  end: number;
}

/** Of one value, all that has to do with it: from the first end to the last begin, or the other way round. */
interface Zone {
  value: number | undefined;
  /** Something of the value ended before something else of it began: the register holds it all this time. */
  isForward: boolean;
  from: number;
  to: number;
}

/** @returns what contradicts that; undefined: nothing does */
export function contradiction(operations: readonly Operation[]): string | undefined {
  const byValue = Map.groupBy(operations, ({ value }) => value);
  // Before all else nothing was there.
  byValue.set(undefined, [{ kind: 'write', value: undefined, begin: -1, end: -1 }, ...(byValue.get(undefined) ?? [])]);
  const zones: Zone[] = [];
  for (const [value, all] of byValue) {
    const write = all.find(({ kind }) => kind === 'write');
    const reads = all.filter(({ kind }) => kind === 'read');
    if (!write) return `${value} was read, and nobody wrote it`;
    if (write.end === Number.POSITIVE_INFINITY && reads.length === 0) continue;
    if (reads.some(({ end }) => end < write.begin)) return `${value} was read before it was written`;
    const [firstEnd, lastBegin] = [Math.min(...all.map(({ end }) => end)), Math.max(...all.map(({ begin }) => begin))];
    const isForward = firstEnd < lastBegin;
    zones.push({ value, isForward, from: Math.min(firstEnd, lastBegin), to: Math.max(firstEnd, lastBegin) });
  }
  const forward = zones.filter(({ isForward }) => isForward).sort((one, other) => one.from - other.from);
  for (const [at, zone] of forward.entries()) {
    const next = forward[at + 1];
    if (next && next.from < zone.to) return `${zone.value} was there before and after ${next.value} was`;
  }
  for (const zone of zones.filter(({ isForward }) => !isForward)) {
    // Forward zones do not overlap: only the last that begins before may hold this one.
    const around = forward.findLast(({ from }) => from < zone.from);
    if (around && zone.to < around.to) return `${around.value} was there before and after ${zone.value} was`;
  }
  return undefined;
}
