/** What counts for whether the host is ready. */
import { expect, it } from 'vitest';
import { createObservation, type ObservationParts } from '../../host/supervisor/observation.ts';

const engine = { now: false, ever: false };
const waiting = new Set(['pay', 'a-stranger']);
const observation = createObservation({
  version: '0.0.0',
  startedAt: 0,
  network: () => ({ name: 'local', testMoney: true }),
  runtime: () => ({ isolation: {} }),
  payments: () => ({ ledger: { stopped: () => undefined } }),
  children: () => [],
  builtins: ['speech', 'pay'],
  deploying: () => waiting,
  speechEngine: () => ({ running: () => engine.now, hasRun: () => engine.ever }),
} as unknown as ObservationParts);
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
