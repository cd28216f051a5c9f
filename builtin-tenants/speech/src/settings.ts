/**
 * The boundary to the host: what the operator configured arrives as text bindings and is checked here, once.
 */
import { z } from 'zod';
import type { Place } from '../../kit/look/layout.ts';
import { readPlaces } from '../../kit/look/tenant.ts';
import { type MicroUsd, parseUsd } from './money.ts';

/** What KV offers, as far as it is used here. */
export interface Store {
  get(key: string): Promise<string | null>;
  put(key: string, value: string, options?: { expirationTtl?: number }): Promise<void>;
  delete(key: string): Promise<void>;
  list(options: { prefix: string; cursor?: string }): Promise<{ keys: { name: string }[]; cursor?: string }>;
}

/** The host's `PAYMENTS`, as far as it is used here. */
export interface PaymentsBinding {
  fetch(url: string, init: RequestInit): Promise<Response>;
}

/** Bindings and secrets; each is described in README.md. All are optional. */
export interface Env {
  STORE?: Store;
  PAYMENTS?: PaymentsBinding;
  APP_URL?: string;
  PLACES?: string;
  PAY_TO?: string;
  PAY_NETWORK?: string;
  PAY_OFFERS?: string;
  DEMO_WALLET_KEY?: string;
  LISTEN_ENGINE?: string;
  SPEAK_ENGINE?: string;
  READ_ENGINE?: string;
  SPEECH_ENGINE_URL?: string;
  DEEPGRAM_API_KEY?: string;
  DEEPGRAM_BASE_URL?: string;
  OPENAI_BASE_URL?: string;
  OPENAI_API_KEY?: string;
  OPENAI_TRANSCRIBE_MODEL?: string;
  OPENAI_SPEECH_MODEL?: string;
  OPENAI_VOICE?: string;
  OPENAI_CHAT_MODEL?: string;
  LISTEN_USD_PER_SECOND?: string;
  SPEAK_USD_PER_MILLION_CHARACTERS?: string;
  MAX_AUDIO_BYTES?: string;
  FETCH_TIMEOUT_MS?: string;
  UPSTREAM_TIMEOUT_MS?: string;
}

export type EngineName = 'deepgram' | 'openai' | 'embedded';

/** One way to pay, without an amount. */
export interface PayOffer {
  /** Such as `charge`, `session`, `exact`, `upto`. */
  intent: string;
  /** Such as `tempo`, `x402`. */
  method: string;
  currency: string;
  /** Whether it is offered on routes with a fixed price, on metered ones, or (undefined) on both. */
  mode?: 'fixed' | 'metered' | undefined;
}

export interface Settings {
  listenEngine: EngineName;
  speakEngine: EngineName;
  readEngine: EngineName;
  engineUrl: string;
  deepgram: { baseUrl: string; apiKey: string };
  openai: {
    baseUrl: string;
    apiKey: string;
    transcribeModel: string;
    speechModel: string;
    voice: string;
    chatModel: string;
  };
  /** Micro-USD for a second of audio. */
  perSecond: MicroUsd;
  /** Micro-USD for a million characters. */
  perMillionCharacters: MicroUsd;
  limits: {
    audioBytes: number;
    textBytes: number;
    speakCharacters: number;
    fetchMs: number;
    upstreamMs: number;
  };
  /** Origin and path of this service, without a slash at the end; undefined: as the caller called it. */
  publicUrl: string | undefined;
  /** What else the host has; kit/look/tenant.ts. */
  places: readonly Place[];
  wallet: string | undefined;
  network: string | undefined;
  /** Ways to pay, as the host offers them. */
  offers: PayOffer[];
  demoWalletKey: string | undefined;
  /** Names that callers' URLs must not lead to: the operator opened them for this service alone. */
  privateHosts: ReadonlySet<string>;
}

/** @throws Error that names the binding that is wrong, never its value */
export function readSettings(env: Env): Settings {
  const engineUrl = url('SPEECH_ENGINE_URL', env.SPEECH_ENGINE_URL ?? 'http://speech-engine.internal');
  const deepgramUrl = url('DEEPGRAM_BASE_URL', env.DEEPGRAM_BASE_URL ?? 'https://api.deepgram.com');
  const openaiUrl = env.OPENAI_BASE_URL ? url('OPENAI_BASE_URL', env.OPENAI_BASE_URL) : '';
  const remote: EngineName = env.DEEPGRAM_API_KEY ? 'deepgram' : openaiUrl !== '' ? 'openai' : 'embedded';
  const chat: EngineName = env.DEEPGRAM_API_KEY ? 'deepgram' : env.OPENAI_CHAT_MODEL ? 'openai' : 'embedded';
  const hosts = [engineUrl, deepgramUrl, openaiUrl].filter(Boolean).map((text) => new URL(text).hostname);
  return {
    listenEngine: engine('LISTEN_ENGINE', env.LISTEN_ENGINE, remote),
    speakEngine: engine('SPEAK_ENGINE', env.SPEAK_ENGINE, remote),
    readEngine: engine('READ_ENGINE', env.READ_ENGINE, chat),
    engineUrl,
    deepgram: { baseUrl: deepgramUrl, apiKey: env.DEEPGRAM_API_KEY ?? '' },
    openai: {
      baseUrl: openaiUrl.replace(/\/v1$/, ''),
      apiKey: env.OPENAI_API_KEY ?? '',
      transcribeModel: env.OPENAI_TRANSCRIBE_MODEL || 'whisper-1',
      speechModel: env.OPENAI_SPEECH_MODEL || 'tts-1',
      voice: env.OPENAI_VOICE || 'alloy',
      chatModel: env.OPENAI_CHAT_MODEL ?? '',
    },
    perSecond: usd('LISTEN_USD_PER_SECOND', env.LISTEN_USD_PER_SECOND ?? '0.0001'),
    perMillionCharacters: usd('SPEAK_USD_PER_MILLION_CHARACTERS', env.SPEAK_USD_PER_MILLION_CHARACTERS ?? '25'),
    limits: {
      audioBytes: whole('MAX_AUDIO_BYTES', env.MAX_AUDIO_BYTES ?? String(100 * 1024 * 1024)),
      textBytes: 256 * 1024,
      speakCharacters: 2000,
      fetchMs: whole('FETCH_TIMEOUT_MS', env.FETCH_TIMEOUT_MS ?? '60000'),
      upstreamMs: whole('UPSTREAM_TIMEOUT_MS', env.UPSTREAM_TIMEOUT_MS ?? '240000'),
    },
    publicUrl: env.APP_URL ? `${env.APP_URL.replace(/\/$/, '')}/speech` : undefined,
    places: readPlaces(env.PLACES, { name: 'Turnpike', href: env.APP_URL ?? '/' }),
    wallet: env.PAY_TO || undefined,
    network: env.PAY_NETWORK || undefined,
    offers: offers(env.PAY_OFFERS),
    // a key is only ever shown to browsers where the money is play money
    demoWalletKey: env.PAY_NETWORK === 'local' ? env.DEMO_WALLET_KEY || undefined : undefined,
    privateHosts: new Set(hosts),
  };
}

const offerSchema = z.array(
  z.object({
    intent: z.string(),
    method: z.string(),
    currency: z.string(),
    mode: z.enum(['fixed', 'metered']).optional(),
  }),
);

function offers(text: string | undefined): PayOffer[] {
  if (!text) return [{ intent: 'charge', method: 'tempo', currency: 'USDC' }];
  try {
    return offerSchema.parse(JSON.parse(text));
  } catch {
    throw new Error('PAY_OFFERS is not a list of offers');
  }
}

function engine(name: string, value: string | undefined, standard: EngineName): EngineName {
  switch (value) {
    case undefined:
    case '':
    case 'auto':
      return standard;
    case 'deepgram':
    case 'openai':
    case 'embedded':
      return value;
    default:
      throw new Error(`${name} must be auto, deepgram, openai or embedded`);
  }
}

function url(name: string, value: string): string {
  if (!URL.canParse(value) || !/^https?:$/.test(new URL(value).protocol)) throw new Error(`${name} is not a URL`);
  return value.replace(/\/+$/, '');
}

function usd(name: string, value: string): MicroUsd {
  try {
    return parseUsd(value);
  } catch {
    throw new Error(`${name} is not an amount in USD`);
  }
}

function whole(name: string, value: string): number {
  if (!/^[1-9]\d{0,11}$/.test(value)) throw new Error(`${name} is not a whole number`);
  return Number(value);
}
