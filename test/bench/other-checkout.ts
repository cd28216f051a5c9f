/**
 * The process of `--against` that runs another checkout's code: `{code, bindings, options}` starts its host with one deployment
 * and answers `{origin, pid}`; `{row}` runs one of its rows. Answers are `{result}` or `{error}`. It ends, with what it
 * started, when its parent disconnects.
 */
import { existsSync } from 'node:fs';
import path from 'node:path';
import { pathToFileURL } from 'node:url';
import type { TurnpikeSubject } from './peers/turnpike.ts';
import type { RowResult } from './table.ts';

const folder = process.argv[2] ?? '';
const ROWS = {
  lifecycle: 'lifecycleRows',
  payments: 'paymentRows',
  scale: 'scaleRows',
  tls: 'tlsRows',
};

type Question = { code: string; bindings: Record<string, unknown>; options: object } | { row: string };

let subject: TurnpikeSubject | undefined;

process.on('message', (question: Question) => {
  const answer = 'row' in question ? runRow(question.row) : startHost(question);
  answer.then(
    (result) => process.send?.({ result }),
    (error: Error) => process.send?.({ error: error.message }),
  );
});
process.on('disconnect', async () => {
  await subject?.stop();
  process.exit();
});

async function load(file: string): Promise<Record<string, unknown>> {
  return await import(pathToFileURL(path.join(folder, 'test/bench', file)).href);
}

async function startHost({
  code,
  bindings,
  options,
}: Exclude<Question, { row: string }>): Promise<{ origin: string; pid: number }> {
  const { startTurnpike } = (await load('peers/turnpike.ts')) as {
    startTurnpike(code: string, bindings: Record<string, unknown>, options: object): Promise<TurnpikeSubject>;
  };
  subject = await startTurnpike(code, bindings, options);
  return { origin: subject.origin, pid: subject.host.pid };
}

async function runRow(wanted: string): Promise<RowResult | undefined> {
  for (const [file, name] of Object.entries(ROWS)) {
    if (!existsSync(path.join(folder, 'test/bench/rows', `${file}.ts`))) continue;
    const rows = (await load(`rows/${file}.ts`))[name] as () => {
      id: string;
      run(waits: () => void): Promise<RowResult>;
    }[];
    const row = rows().find(({ id }) => id === wanted);
    if (row) return row.run(() => {});
  }
  return undefined;
}
