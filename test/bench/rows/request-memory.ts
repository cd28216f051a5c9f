/** Memory of the host's own processes over many plain requests. REQUESTS=1000000 takes more than the bench has time for. */
import { load } from '../load.ts';
import { growth, sample } from '../part-memory.ts';
import { startTurnpike } from '../peers/turnpike.ts';
import { type Figure, judge, type RowResult } from '../table.ts';
import { HELLO } from '../workers.ts';

const REQUESTS = Number(process.env.REQUESTS ?? 100_000);
const SAMPLES = 5;
const SECONDS = 2;

export async function requestMemory(): Promise<RowResult> {
  const subject = await startTurnpike(HELLO);
  try {
    const figures: Figure[] = [await sample(subject.host, 'start')];
    let made = 0;
    let failed = 0;
    for (let turn = 1; turn <= SAMPLES; turn++) {
      while (made < (turn * REQUESTS) / SAMPLES) {
        const { perSecond, errors } = await load({ url: `${subject.origin}/`, seconds: SECONDS }, []);
        made += Math.round(perSecond * SECONDS);
        failed += errors;
      }
      figures.push(await sample(subject.host, `${made} requests`));
      if (REQUESTS > 100_000) console.error(JSON.stringify(figures.at(-1)));
    }
    return {
      id: 'request-memory',
      title: 'Private memory over plain requests, MB (32 connections; garbage collected)',
      figures,
      targets: [
        judge('supervisor at the start', '≤ 150 MB', [Number(figures[0]?.cells.supervisor)]),
        judge('failed requests', '≤ 0', [failed]),
        ...growth(figures),
      ],
      skipped: [],
    };
  } finally {
    await subject.stop();
  }
}
