/**
 * GET /openapi.json: OpenAPI 3.1 with the payment information of each paid operation, ours and the standard's.
 */
import { FREE_ROUTES, PAID_ROUTES, type PaidOperation, VERSION } from '../catalogue.ts';
import type { Settings } from '../settings.ts';

interface Parameter {
  name: string;
  description: string;
  schema: object;
}

const flag = (name: string, description: string): Parameter => ({ name, description, schema: { type: 'boolean' } });
const text = (name: string, description: string): Parameter => ({ name, description, schema: { type: 'string' } });
const list = (name: string, description: string): Parameter => ({
  name,
  description,
  schema: { type: 'array', items: { type: 'string' } },
});

const INSIGHT = [
  text('summarize', 'true or v2: a summary'),
  flag('topics', 'topics by sentence'),
  flag('intents', 'intents by sentence'),
  flag('sentiment', 'sentiment by sentence and on average'),
  list('custom_topic', 'topics to look for; repeat the key'),
  text('custom_topic_mode', 'extended or strict'),
  list('custom_intent', 'intents to look for; repeat the key'),
  text('custom_intent_mode', 'extended or strict'),
];
const COMMON = [
  text('callback', 'URL that the answer is sent to'),
  text('callback_method', 'POST or PUT'),
  list('tag', 'comes back in metadata.tags'),
];

const PARAMETERS: Record<string, Parameter[]> = {
  '/v1/listen': [
    text('model', 'model of the engine in use'),
    text('language', 'BCP 47 tag'),
    flag('detect_language', 'find out the language'),
    flag('punctuate', 'punctuation and case'),
    flag('smart_format', 'punctuation, case and paragraphs; English numbers, dates, times and currency in digits'),
    flag('numerals', 'English numbers in digits'),
    list('search', 'terms to find: channels[].search tells where they were said'),
    list('replace', 'find:replacement; without a replacement the term is left out'),
    flag('paragraphs', 'paragraphs and sentences with times'),
    flag('utterances', 'utterances, cut at pauses'),
    { name: 'utt_split', description: 'pause between utterances, seconds', schema: { type: 'number', default: 0.8 } },
    flag('multichannel', 'transcribe each channel by itself; each is charged'),
    flag('diarize', 'who speaks (Deepgram engine)'),
    list('keyterm', 'terms to listen for (Deepgram engine)'),
    list('redact', 'what to leave out (Deepgram engine)'),
    text('encoding', 'of samples without a header: linear16, linear32, mulaw, alaw'),
    { name: 'sample_rate', description: 'of samples without a header', schema: { type: 'integer' } },
    { name: 'channels', description: 'of samples without a header', schema: { type: 'integer', default: 1 } },
    list('extra', 'key:value, comes back in metadata.extra'),
    ...INSIGHT,
    ...COMMON,
  ],
  '/v1/speak': [
    text('model', 'voice: of the engine in use; the last part of Deepgram’s names chooses the language'),
    text('encoding', 'mp3 (default), linear16, mulaw, alaw, opus, flac, aac'),
    text('container', 'wav or none, with linear16, mulaw and alaw'),
    { name: 'sample_rate', description: 'samples a second', schema: { type: 'integer' } },
    { name: 'bit_rate', description: '32000 or 48000, with mp3', schema: { type: 'integer' } },
    { name: 'speed', description: '0.7 to 1.5', schema: { type: 'number', default: 1 } },
    ...COMMON,
  ],
  '/v1/read': [text('language', 'BCP 47 tag'), ...INSIGHT, ...COMMON],
};

const LIVE = [
  text('encoding', 'of samples without a header: linear16, linear32, mulaw, alaw; leave it out for WebM, Ogg, MP3, …'),
  { name: 'sample_rate', description: 'of samples without a header', schema: { type: 'integer' } },
  { name: 'channels', description: 'how many there are', schema: { type: 'integer', default: 1 } },
  flag('multichannel', 'transcribe each channel by itself; each is charged'),
  text('language', 'BCP 47 tag'),
  flag('punctuate', 'punctuation and case, where the model hears them'),
  flag('interim_results', 'results while somebody speaks'),
  text('endpointing', 'silence that ends an utterance, ms, at least 300; or false'),
  { name: 'utterance_end_ms', description: 'silence after the last word, at least 1000', schema: { type: 'integer' } },
  flag('vad_events', 'a message when speech starts'),
];

const TEXT_BODY = { type: 'object', required: ['text'], properties: { text: { type: 'string' } } };
const URL_BODY = { type: 'object', required: ['url'], properties: { url: { type: 'string', format: 'uri' } } };
const AUDIO = { schema: { type: 'string', contentMediaType: 'application/octet-stream' } };

const BODIES: Record<string, object> = {
  '/v1/listen': { 'application/json': { schema: URL_BODY }, 'application/octet-stream': AUDIO, 'audio/*': AUDIO },
  '/v1/speak': {
    'application/json': { schema: { ...TEXT_BODY, properties: { text: { type: 'string', maxLength: 2000 } } } },
  },
  '/v1/read': { 'application/json': { schema: { oneOf: [TEXT_BODY, URL_BODY] } }, 'text/plain': {}, 'audio/*': AUDIO },
};

export function openapi(settings: Settings, url: string): object {
  const paths: Record<string, Record<string, object>> = {};
  for (const route of PAID_ROUTES)
    paths[route.path] = { ...paths[route.path], [route.method.toLowerCase()]: paidOperation(route, settings) };
  for (const { method, path, description } of FREE_ROUTES) {
    paths[path] = {
      [method.toLowerCase()]: { summary: description, security: [], responses: { 200: { description: 'OK' } } },
    };
  }
  return {
    openapi: '3.1.0',
    info: {
      title: 'Speech',
      version: VERSION,
      description: 'Transcription, text to speech and text intelligence, paid per call. The contract is Deepgram’s.',
      'x-guidance': `See ${url}/llms.txt for how to call and pay.`,
    },
    servers: [{ url }],
    paths,
    components: {
      securitySchemes: {
        payment: {
          type: 'http',
          scheme: 'Payment',
          description:
            'The credential that answers a challenge of the 402: https://mpp.dev. Or PAYMENT-SIGNATURE of x402, or X-PAYMENT of x402 v1.',
        },
      },
      schemas: {
        Error: {
          type: 'object',
          required: ['err_code', 'err_msg', 'request_id'],
          properties: { err_code: { type: 'string' }, err_msg: { type: 'string' }, request_id: { type: 'string' } },
        },
      },
    },
  };
}

function paidOperation(route: PaidOperation, settings: Settings): object {
  const isLive = route.method === 'GET';
  const { path, sku, pricingVersion, price, priceUsd, metered, description } = route;
  const mode = metered ? 'metered' : 'fixed';
  const error = (text: string) => ({
    description: text,
    content: { 'application/json': { schema: { $ref: '#/components/schemas/Error' } } },
  });
  return {
    operationId: `${path.slice('/v1/'.length)}${isLive ? '-live' : ''}`,
    summary: description,
    parameters: ((isLive && path === '/v1/listen' ? LIVE : PARAMETERS[path]) ?? []).map((parameter) => ({
      in: 'query',
      ...parameter,
    })),
    ...(isLive ? {} : { requestBody: { required: true, content: BODIES[path] } }),
    security: [{ payment: [] }],
    'x-payment': { method: settings.network ?? 'local', currency: 'USDC', amount: priceUsd, sku, pricingVersion },
    'x-payment-info': {
      offers: settings.offers
        .filter((offer) => offer.mode === undefined || offer.mode === mode)
        .map(({ intent, method, currency }) => ({
          intent,
          method,
          amount: String(price),
          currency,
          description,
          sku,
          pricingVersion,
        })),
    },
    responses: {
      [isLive ? 101 : 200]: {
        description: isLive ? 'A WebSocket that speaks Deepgram’s live protocol' : 'OK',
        content:
          path === '/v1/speak' ? { 'audio/mpeg': AUDIO } : { 'application/json': { schema: { type: 'object' } } },
      },
      400: error('The request, or the content at the URL, is not acceptable'),
      402: { description: 'Payment Required' },
      413: error('Too large'),
      422: error('An option that this engine does not have'),
      429: error('The queue is full; see Retry-After'),
      503: error('No engine'),
      504: error('Not done in time'),
    },
  };
}
