/** What a live stream is asked to do. Checked here: the tenant is our own code, but its callers' options pass through it. */
import { z } from 'zod';
import type { RawFormat } from '../audio/container.ts';
import { refuseWide } from '../audio/decode.ts';
import { EngineFailure } from '../failure.ts';

const number = z.coerce.number();

const schema = z.object({
  encoding: z.enum(['linear16', 'linear32', 'mulaw', 'alaw']).optional(),
  sample_rate: number.int().min(4000).max(192_000).optional(),
  channels: number.int().min(1).max(8).default(1),
  multichannel: z.stringbool().default(false),
  language: z
    .string()
    .regex(/^[A-Za-z]{2,8}(-[A-Za-z0-9]{1,8})*$/)
    .optional(),
  punctuate: z.stringbool().default(false),
  interim: z.stringbool().default(false),
  vad_events: z.stringbool().default(false),
  /** Silence that ends an utterance, ms; 0: nothing ends one. */
  endpointing: number.int().min(0).max(60_000),
  /** Silence after the last word, ms. */
  utterance_end: number.int().min(1000).max(60_000).optional(),
  max_billable_ms: number.int().min(0),
  request_id: z.string().max(100).default(''),
  payer: z.string().max(200).optional(),
  address: z.string().max(200).optional(),
});

export interface LiveRequest {
  /** Undefined: the audio says itself what it is. */
  raw: RawFormat | undefined;
  channels: number;
  multichannel: boolean;
  language: string | undefined;
  /** Words as they are written, where the recognizer hears that. */
  punctuate: boolean;
  interim: boolean;
  vadEvents: boolean;
  endpointingMs: number;
  utteranceEndMs: number | undefined;
  /** The most that may be heard, ms over all channels. */
  maxBillableMs: number;
  requestId: string;
  /** Of the caller: payer, address. */
  names: string[];
}

/** @throws EngineFailure bad_request, too_large */
export function parseLive(query: URLSearchParams): LiveRequest {
  const result = schema.safeParse(Object.fromEntries(query));
  if (!result.success) {
    const [issue] = result.error.issues;
    throw new EngineFailure('bad_request', `${issue?.path.join('.') ?? ''}: ${issue?.message ?? 'not acceptable'}`);
  }
  const asked = result.data;
  const { encoding, sample_rate: sampleRate, channels } = asked;
  if (sampleRate !== undefined) refuseWide({ sampleRate, channels });
  return {
    raw: encoding === undefined || sampleRate === undefined ? undefined : { encoding, sampleRate, channels },
    channels,
    multichannel: asked.multichannel,
    language: asked.language,
    punctuate: asked.punctuate,
    interim: asked.interim,
    vadEvents: asked.vad_events,
    endpointingMs: asked.endpointing,
    utteranceEndMs: asked.utterance_end,
    maxBillableMs: asked.max_billable_ms,
    requestId: asked.request_id,
    names: [asked.payer, asked.address].filter((name) => name !== undefined),
  };
}
