/** Refusals while an upload is still on its way reach the caller as what they are, not as a broken connection. */
import { readFileSync } from 'node:fs';
import { request } from 'node:http';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { type RunningEngine, type RunningTenant, startEngine, startTenant } from '../speech/harness/programs.ts';
import { requestSocket } from '../speech/harness/socket.ts';
import { toneWav } from '../speech/harness/sound.ts';

let engine: RunningEngine;
let tenant: RunningTenant;

beforeAll(async () => {
  engine = await startEngine({ listen: { jobs: 1, waiting: 0 }, limits: { audioBytes: 300_000, audioSeconds: 5 } });
  tenant = await startTenant(engine);
});

afterAll(async () => {
  await tenant?.stop();
  await engine?.stop();
});

async function listen(seconds: number): Promise<[number, unknown]> {
  const response = await fetch(`${tenant.url}/v1/listen`, {
    method: 'POST',
    body: toneWav(seconds),
    headers: { 'content-type': 'audio/wav' },
  });
  const { err_code: code } = (await response.json()) as { err_code?: string };
  return [response.status, code];
}

it('says that the queue is full, to every one of twenty calls but the one that runs', async () => {
  const outcomes = await Promise.all(Array.from({ length: 20 }, () => listen(4)));
  expect(outcomes.filter(([status]) => status === 200)).toHaveLength(1);
  expect(outcomes.filter(([, code]) => code === 'TOO_MANY_REQUESTS')).toHaveLength(19);
});

it('says that the audio is too large, or too long', async () => {
  expect(await listen(60)).toEqual([413, 'PAYLOAD_TOO_LARGE']);
  expect(await listen(7)).toEqual([413, 'PAYLOAD_TOO_LARGE']);
  expect(await listen(1)).toEqual([200, undefined]);
});

it('gives the place of a caller that leaves to others, and ends what worked for it', async () => {
  const queue = async () => {
    const { json } = await requestSocket(engine.socket, 'GET', '/health');
    return (json as { listen: { queue: object } }).listen.queue;
  };
  const left = request({ socketPath: engine.socket, method: 'POST', path: '/listen' });
  left.on('error', () => {});
  left.end(toneWav(4));
  await expect.poll(queue, { interval: 10 }).toMatchObject({ running: 1 });
  left.destroy();
  await expect.poll(queue).toMatchObject({ running: 0, waiting: 0 });
  const children = () => readFileSync(`/proc/${engine.pid}/task/${engine.pid}/children`, 'utf8').trim();
  await expect.poll(children).toBe('');
});
