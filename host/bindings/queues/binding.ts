/** Queues: `env.JOBS.send(body)`, and batches for the `queue()` of the same deployment. workerd has them built in. */
import { readFileSync } from 'node:fs';
import { z } from 'zod';
import { type Binding, byName } from '../binding.ts';

/** Name of the service that keeps the messages. */
export const QUEUES_SERVICE = 'queues';

export const QUEUE_NAME = /^[A-Za-z0-9][A-Za-z0-9_-]{0,62}$/;
const queueName = z
  .string()
  .regex(QUEUE_NAME, 'is an invalid name of a queue: use letters, digits, _ and - (at most 63)');

let source: string | undefined;

/** Source of the worker behind the service. */
export function queuesWorker(): string {
  source ??= readFileSync(new URL('queues-worker.js', import.meta.url), 'utf8');
  return source;
}

/** Limits as Cloudflare has them: https://developers.cloudflare.com/queues/platform/limits/ */
const consumer = z.strictObject({
  maxBatchSize: z.int().min(1).max(100).optional().describe('messages; default: 10'),
  maxBatchTimeout: z.number().min(0).max(60).optional().describe('seconds to wait for a full batch; default: 5'),
  maxRetries: z.int().min(0).max(100).optional().describe('of a message; default: 3'),
  retryDelay: z.int().min(0).max(43_200).optional().describe('seconds before a retry; default: 0'),
  deadLetterQueue: queueName.optional().describe('where messages go that were tried often enough; default: nowhere'),
  maxConcurrency: z.int().min(1).max(250).optional().describe('batches at once; default: as many as there are'),
});

const settings = z.strictObject({
  queue: queueName.describe('name of the queue'),
  consumer: consumer.optional().describe('the code has a queue() that takes its batches'),
  shared: z
    .boolean()
    .optional()
    .describe(
      "the owner's queue of this name: whoever says so and has no consumer sends to the deployment that says so and has one",
    ),
  producer: z.boolean().optional().describe('false: nothing is bound; the queue has a consumer only'),
});

type Settings = z.infer<typeof settings>;

/** Its messages are kept by another deployment. */
export function isElsewhere({ shared, consumer }: Readonly<Record<string, unknown>>): boolean {
  return shared === true && consumer === undefined;
}

function agree(all: false | Record<string, Settings>): boolean {
  const places = new Map<string, boolean>();
  return Object.values(all).every(({ queue, shared = false }) => {
    const known = places.get(queue) ?? shared;
    places.set(queue, known);
    return known === shared;
  });
}

function oneConsumer(all: false | Record<string, Settings>): boolean {
  const consumed = Object.values(all).flatMap(({ queue, consumer }) => (consumer ? [queue] : []));
  return new Set(consumed).size === consumed.length;
}

export const queues: Binding = {
  key: 'queues',
  title: 'Queues',
  summary: 'messages for later',
  settings: byName(settings)
    .refine(oneConsumer, 'gives one queue two consumers')
    .refine(agree, 'has a queue that is shared and not shared'),
  hidden: ({ producer }) => producer === false,
  asked: true,
  server: async () => (await import('./server.ts')).queuesServer,
  isServed: isElsewhere,
  workerd: {
    write(binding, { service: socket, settings }) {
      const { queue } = settings;
      const service = binding.initQueue();
      if (isElsewhere(settings)) {
        service.setName(socket);
        return;
      }
      service.setName(QUEUES_SERVICE);
      service.getProps().setJson(JSON.stringify({ queue }));
    },
    writeControl(binding, { settings: { queue } }) {
      const service = binding.initService();
      service.setName(QUEUES_SERVICE);
      service.setEntrypoint('QueueControl');
      service.getProps().setJson(JSON.stringify({ queue }));
    },
  },
};
