/** What counts for whether the host is ready. */
import { expect, it } from 'vitest';
import { createObservation, type ObservationDeps } from '../../host/supervisor/observation.ts';

const engine = { now: false, ever: false };
const said: string[] = [];
let answers = true;
const registry: { failure: Error | undefined } = { failure: undefined };
const waiting = new Set(['pay']);
const observation = createObservation({
  version: '0.0.0',
  startedAt: 0,
  log: { warn: (_: object, text: string) => said.push(text), info: (_: object, text: string) => said.push(text) },
  metrics: { watch: () => undefined },
  network: { name: 'local', testMoney: true, healthy: async () => ({ ok: answers, detail: '' }) },
  runtime: { isolation: {} },
  payments: { ledger: { stopped: () => undefined } },
  registry,
  children: [],
  builtins: ['speech', 'pay'],
  builtinsWaiting: waiting,
  speechEngine: { running: () => engine.now, hasRun: () => engine.ever },
} as unknown as ObservationDeps);
observation.setReady();

it('the host is ready once each built-in tenant is deployed and the speech engine runs, and stays so', () => {
  const now = () => {
    const { ready, body } = observation.health();
    return [ready, body.status, body.parts.pay?.state, body.parts['speech-engine']?.state];
  };
  expect(observation.health().body.parts).toMatchObject({ speech: { state: 'ready' } });
  expect(now()).toEqual([false, 'unavailable', 'starting', 'starting']);
  waiting.delete('pay');
  expect(now()).toEqual([false, 'unavailable', 'ready', 'starting']);
  Object.assign(engine, { now: true, ever: true });
  expect(now()).toEqual([true, 'ok', 'ready', 'ready']);
  engine.now = false;
  expect(now()).toEqual([true, 'degraded', 'ready', 'restarting']);
});

it('a registry whose disk failed takes the host out of service', () => {
  registry.failure = new Error('EIO');
  const { ready, body } = observation.health();
  expect([ready, body.parts.registry]).toEqual([
    false,
    { state: 'stopped', detail: expect.stringContaining('start the host again') },
  ]);
  registry.failure = undefined;
  expect(observation.health().body.parts.registry).toEqual({ state: 'ready' });
});

it('a payment network that stops answering is told once, and so is its return', async () => {
  for (const now of [true, false, false, true, true]) {
    answers = now;
    await observation.checkNetwork();
  }
  expect(said).toEqual([expect.stringContaining('check payments.rpcUrl'), 'the payment network is well again']);
});
