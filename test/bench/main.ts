/**
 * `npm run bench`: everything side by side in one session; writes bench/latest.md and .json and prints the table.
 * `--rows a,b` runs some rows only; `--compare` also shows what got worse since the last recorded run; `--against
 * <folder>` measures another checkout instead of peers, in pairs, and records nothing.
 */
import { existsSync, mkdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { pairing } from './compare.ts';
import { hasWrk } from './load.ts';
import { machineKind } from './machine.ts';
import { isWorse, OtherCheckout, pairTable } from './pairs.ts';
import { clusterRows } from './rows/cluster.ts';
import { fileRows } from './rows/files.ts';
import { lifecycleRows } from './rows/lifecycle.ts';
import { objectRows } from './rows/objects.ts';
import { paymentRows } from './rows/payments.ts';
import { bodyRows, hello, storageRows } from './rows/requests.ts';
import { scaleRows } from './rows/scale.ts';
import { tailRows } from './rows/tails.ts';
import { tlsRows } from './rows/tls.ts';
import type { SharedSubjects } from './subject.ts';
import { markdown, type Report, type RowResult, regressions } from './table.ts';

const FOLDER = fileURLToPath(new URL('../../bench/', import.meta.url));

interface Row {
  id: string;
  /** @param waits called by a row that only waits from then on: the next one may run beside it */
  run(waits: () => void): Promise<RowResult>;
  /** It puts its load on one handler by `compare`. */
  compares?: boolean;
  /** Nobody may run beside it, not even who only waits. */
  alone?: boolean;
  /** What it has started and the next row measures too. */
  subjects?: SharedSubjects;
}

const ROWS: Row[] = [
  ...[{ id: 'hello', run: hello }, ...bodyRows(), ...fileRows()].map(comparing),
  ...tlsRows(),
  ...[...storageRows(), ...objectRows()].map(comparing),
  ...lifecycleRows(),
  ...tailRows(),
  ...paymentRows(),
  ...scaleRows(),
  ...clusterRows(),
];

function comparing(row: Row): Row {
  return { ...row, compares: true };
}

const { values } = parseArgs({
  options: {
    rows: { type: 'string' },
    compare: { type: 'boolean' },
    against: { type: 'string' },
    help: { type: 'boolean' },
  },
});
if (values.help) {
  console.log(
    `npm run bench -- [--rows ${ROWS.map(({ id }) => id).join(',')}] [--compare | --against <folder>] [--install-system]`,
  );
  process.exit(0);
}
if (!hasWrk()) {
  console.error('The bench needs wrk: npm run bench -- --install-system, or apt-get install wrk');
  process.exit(1);
}

const wanted = values.rows?.split(',');
const unknown = wanted?.find((name) => !ROWS.some(({ id }) => id === name));
if (unknown !== undefined) {
  console.error(`There is no row ${unknown}; there are ${ROWS.map(({ id }) => id).join(', ')}.`);
  process.exit(2);
}
const wantedRows = ROWS.filter(({ id }) => !wanted || wanted.includes(id));
if (values.against !== undefined) {
  const worse = await inPairs(new OtherCheckout(values.against), wantedRows);
  process.exit(worse ? 1 : 0);
}
const report: Report = {
  at: new Date().toISOString(),
  machine: `${await machineKind()}: ${os.cpus().length} × ${os.cpus()[0]?.model ?? 'unknown'}, ${Math.round(os.totalmem() / 2 ** 30)} GiB, Linux ${os.release()}, Node ${process.version}`,
  rows: [],
};
const started = performance.now();
const rows = await Promise.all(await inTurn(wantedRows));
report.rows.push(...rows);

/** @returns whether a row is worse than in the other checkout */
async function inPairs(other: OtherCheckout, chosen: Row[]): Promise<boolean> {
  pairing.with = other;
  for (const [index, row] of chosen.entries()) {
    process.stderr.write(`${row.id} …\n`);
    pairing.row = row.id;
    const before = other.pairs.length;
    try {
      if (row.compares) await row.run(() => {});
      else await other.runPairs(row.id, () => row.run(() => {}));
    } catch (error) {
      other.skipped.push(`${row.id}: failed: ${(error as Error).message}`);
    }
    // Also here: a time limit should not lose what was measured before it.
    if (other.pairs.length > before) process.stderr.write(`${pairTable(other.pairs.slice(before))}\n`);
    if (row.subjects !== chosen[index + 1]?.subjects) await row.subjects?.stop();
  }
  await other.stop();
  console.log(pairTable(other.pairs));
  for (const skipped of other.skipped) console.log(`- skipped: ${skipped}`);
  return other.pairs.some(isWorse);
}

/** @returns a promise for each; only those of rows that wait may be open */
async function inTurn(chosen: Row[]): Promise<Promise<RowResult>[]> {
  const running: Promise<RowResult>[] = [];
  for (const [index, row] of chosen.entries()) {
    if (row.alone) await Promise.all(running);
    const waits = Promise.withResolvers<void>();
    const result = measured(row, waits.resolve);
    running.push(result);
    await Promise.race([result, waits.promise]);
    if (row.subjects !== chosen[index + 1]?.subjects) await row.subjects?.stop();
  }
  return running;
}

async function measured(row: Row, waits: () => void): Promise<RowResult> {
  process.stderr.write(`${row.id} …\n`);
  const at = performance.now();
  try {
    return await row.run(waits);
  } catch (error) {
    // A row that fails is shown as failed; the others are still worth having.
    process.exitCode = 1;
    return {
      id: row.id,
      title: row.id,
      figures: [],
      targets: [],
      skipped: [`failed: ${(error as Error).message}`],
    };
  } finally {
    process.stderr.write(`${row.id} took ${Math.round((performance.now() - at) / 1000)} s\n`);
  }
}

mkdirSync(FOLDER, { recursive: true });
const latest = `${FOLDER}latest.json`;
const before = existsSync(latest) ? (JSON.parse(readFileSync(latest, 'utf8')) as Report) : undefined;
if (before) renameSync(latest, `${FOLDER}previous.json`);
// Rows that were not run keep their earlier figures in the record.
const record = {
  ...report,
  rows: [...(before?.rows ?? []).filter(({ id }) => !report.rows.some((row) => row.id === id)), ...report.rows],
};
writeFileSync(latest, `${JSON.stringify(record, null, 2)}\n`);
writeFileSync(`${FOLDER}latest.md`, markdown(record));
console.log(markdown(report));
console.log(`${Math.round((performance.now() - started) / 1000)} s`);
if (values.compare && before) {
  const worse = regressions(before, report);
  console.log(
    worse.length === 0
      ? 'Nothing got worse by more than 15 %.'
      : `Worse by more than 15 %:\n${worse.map((line) => `- ${line}`).join('\n')}`,
  );
  if (worse.length > 0) process.exitCode = 1;
}
// A row that failed may have left something open.
process.exit();
