/**
 * The boundary of the engine: what the tenant sends is checked here and becomes typed requests.
 * The tenant is our own code, but what its callers asked for passes through it.
 */
import type { IncomingMessage } from 'node:http';
import { z } from 'zod';
import { EngineFailure } from './failure.ts';
import type { ListenRequest } from './listen/listen.ts';
import type { ReadTask } from './read/thread.ts';
import type { SpeakRequest } from './speak/speaker.ts';

const number = z.coerce.number();

const listenSchema = z.object({
  multichannel: z.stringbool().default(false),
  diarize: z.stringbool().default(false),
  punctuate: z.stringbool().default(false),
  language: z
    .string()
    .regex(/^[A-Za-z]{2,8}(-[A-Za-z0-9]{1,8})*$/)
    .optional(),
  encoding: z.enum(['linear16', 'linear32', 'mulaw', 'alaw']).optional(),
  sample_rate: number.int().min(4000).max(192_000).optional(),
  channels: number.int().min(1).max(8).default(1),
  max_billable_ms: number.int().min(0).optional(),
  payer: z.string().max(200).optional(),
  address: z.string().max(200).optional(),
});

const spokenPart = z.union([
  z.strictObject({ text: z.string().min(1), rate: z.number().min(0.5).max(2).optional() }),
  z.strictObject({ pauseMs: z.number().int().min(1).max(10_000) }),
]);

const speakSchema = z.strictObject({
  text: z.union([z.string().min(1), z.array(spokenPart).min(1).max(200)]),
  model: z.string().max(100).optional(),
  encoding: z.string().max(20).optional(),
  container: z.string().max(20).optional(),
  sampleRate: z.number().optional(),
  bitRate: z.number().optional(),
  speed: z.number().positive().optional(),
});

const names = z.array(z.string().max(200)).max(100).default([]);
const mode = z.enum(['extended', 'strict']).default('extended');

const readSchema = z.strictObject({
  text: z.string(),
  summarize: z.boolean().default(false),
  topics: z.boolean().default(false),
  intents: z.boolean().default(false),
  sentiment: z.boolean().default(false),
  customTopics: names,
  customTopicMode: mode,
  customIntents: names,
  customIntentMode: mode,
});

export function parseListen(query: URLSearchParams): ListenRequest {
  const asked = check(listenSchema, Object.fromEntries(query));
  const { encoding, sample_rate: sampleRate, channels } = asked;
  return {
    multichannel: asked.multichannel,
    diarize: asked.diarize,
    punctuate: asked.punctuate,
    language: asked.language,
    raw: encoding === undefined || sampleRate === undefined ? undefined : { encoding, sampleRate, channels },
    maxBillableMs: asked.max_billable_ms,
    names: [asked.payer, asked.address].filter((name) => name !== undefined),
  };
}

export function parseSpeak(body: unknown): SpeakRequest {
  return check(speakSchema, body);
}

export function parseRead(body: unknown): ReadTask {
  return check(readSchema, body);
}

/** @throws EngineFailure too_large, bad_request */
export async function readJson(request: IncomingMessage, maxBytes: number): Promise<unknown> {
  const chunks: Buffer[] = [];
  let bytes = 0;
  for await (const chunk of request.iterator({ destroyOnReturn: false }) as AsyncIterable<Buffer>) {
    bytes += chunk.length;
    if (bytes > maxBytes) throw new EngineFailure('too_large', `The text is larger than ${maxBytes} bytes.`);
    chunks.push(chunk);
  }
  try {
    return JSON.parse(Buffer.concat(chunks).toString('utf8'));
  } catch {
    throw new EngineFailure('bad_request', 'The body is not JSON.');
  }
}

function check<T>(schema: z.ZodType<T>, value: unknown): T {
  const result = schema.safeParse(value);
  if (result.success) return result.data;
  const [issue] = result.error.issues;
  throw new EngineFailure('bad_request', `${issue?.path.join('.') ?? ''}: ${issue?.message ?? 'not acceptable'}`);
}
