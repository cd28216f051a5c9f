/**
 * Tail workers: another deployment of the owner, whose `tail(events)` gets the trace of each invocation.
 * https://developers.cloudflare.com/workers/observability/logs/tail-workers/
 */
import { z } from 'zod';
import { SLUG } from '../../shared/slug.ts';
import { type Binding, byName } from '../binding.ts';

const settings = z.strictObject({
  service: z
    .string()
    .regex(SLUG, 'is no slug: 3 to 40 characters a-z, 0-9 and -')
    .describe('slug of the deployment of yours whose tail() gets the traces'),
});

/** Service of the worker that hands traces on. */
export const TAIL_SERVICE = 'tail';
/** Each gets every trace. */
const MOST = 8;

export const tails: Binding = {
  key: 'tails',
  title: 'Tail Workers',
  summary: 'traces for another deployment',
  settings: byName(settings).refine((all) => Object.keys(all || {}).length <= MOST, `takes at most ${MOST} names`),
  outsideEnv: true,
  idOf: ({ service }) => String(service),
  server: async () => (await import('./server.ts')).tailsServer,
  workerd: {
    write: (binding, { service }) => binding.initService().setName(service),
  },
};

/**
 * What workerd calls with the traces of the tenant's worker: a worker of ours beside it, which hands them to the host by a
 * socket for each consumer. workerd has redacted them by then, as Cloudflare does. Invocations of `tail()` itself have no
 * trace, so that deployments that tail each other do not go on for ever. What comes within a moment is one message: a
 * message for each invocation took twice as long as the invocations.
 */
export const TAIL_WORKER = `
/** Of one message, characters. */
const MOST = 256_000;
/** From the first trace of a message, ms: an instance that ends takes what it has not sent along. */
const MOMENT = 10;

let waiting = [];
let length = 0;
let collecting = false;

function shown(item) {
  const { logs, diagnosticsChannelEvents, ...rest } = item;
  try {
    const text = JSON.stringify(item);
    if (text.length <= MOST) return text;
  } catch {
    // Such as a BigInt in what a diagnostics channel was given.
  }
  return JSON.stringify({ ...rest, logs: [], diagnosticsChannelEvents: [], truncated: true });
}

async function send(env) {
  const traces = waiting;
  waiting = [];
  length = 0;
  if (traces.length === 0) return;
  const message = { method: 'POST', body: traces.join(','), headers: { traces: String(traces.length) } };
  await Promise.allSettled(Object.values(env).map((consumer) => consumer.fetch('http://tail/', message)));
}

export default {
  async tail(events, env) {
    for (const event of events) {
      if (event.event?.rpcMethod === 'tail') continue;
      const text = shown(event);
      if (text.length > MOST) continue;
      if (length + text.length > MOST) await send(env);
      waiting.push(text);
      length += text.length;
    }
    if (collecting || waiting.length === 0) return;
    collecting = true;
    try {
      await scheduler.wait(MOMENT);
    } finally {
      collecting = false;
    }
    await send(env);
  },
};
`;
