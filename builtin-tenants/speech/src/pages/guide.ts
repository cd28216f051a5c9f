/**
 * GET /llms.txt and GET /docs: the same guide, as Markdown for agents and as a page for people.
 */

import { html } from '../../../kit/look/layout.ts';
import { MPPX_COMMAND, MPPX_PACKAGES } from '../../../kit/stock-clients.ts';
import { FREE_ROUTES, PAID_ROUTES } from '../catalogue.ts';
import { formatUsd, priceOfAudio } from '../money.ts';
import type { Settings } from '../settings.ts';
import { page } from './layout.ts';

interface Section {
  title: string;
  paragraphs: string[];
  /** Copyable text. */
  code?: string;
}

/** Stock clients know no RPC of the local network. */
const LOCAL_CLIENT = `const getClient = ({ chainId }) =>
  createClient({ chain: { ...tempoLocalnet, id: chainId }, transport: http(process.env.MPPX_RPC_URL) });
`;

/** Shell line that gives a client its wallet. */
function keys(local: boolean): string {
  return local
    ? "# rpcUrl and a wallet's privateKey of local-network.json in the host's data folder\nexport MPPX_RPC_URL=http://… MPPX_PRIVATE_KEY=0x…"
    : 'export MPPX_PRIVATE_KEY=0x…';
}

export function guide(settings: Settings, url: string): { title: string; intro: string; sections: Section[] } {
  const minute = formatUsd(priceOfAudio(60_000, settings.perSecond));
  const thousand = formatUsd(Math.ceil(settings.perMillionCharacters / 1000));
  const seconds = Math.floor(settings.perSecond === 0 ? 0 : 50_000 / settings.perSecond);
  const local = settings.network === 'local';
  const test = local ? ' This host runs on play money.' : '';
  return {
    title: 'Speech',
    intro: `Transcription, text to speech and text intelligence, paid per call; no account.${test}`,
    sections: [
      {
        title: 'What it costs',
        paragraphs: [
          ...PAID_ROUTES.map(
            ({ method, path, priceUsd, metered, description, sku }) =>
              `${method} ${path}: ${metered ? 'at most ' : ''}${priceUsd} USDC (${sku}). ${description}.`,
          ),
          `Metered calls hold the price and charge what was used: ${minute} USDC a minute of audio (each channel), ${thousand} USDC for 1,000 characters. Audio longer than ${seconds} s needs more than the price: it is refused before any work, uncharged, with the amount it needs.`,
          'GET /v1/listen opens a WebSocket with Deepgram’s live protocol, paid with its handshake by a header. What may be heard is held then; each second that was begun is charged, the last message and the close frame say how much, and the rest comes back.',
          'Whatever is not answered with a 2xx costs nothing. An Idempotency-Key binds retries: the same key is charged once and gets the same answer.',
        ],
      },
      {
        title: 'How to pay',
        paragraphs: [
          'A call without payment is answered 402 with WWW-Authenticate: Payment (MPP) and PAYMENT-REQUIRED (x402). Any client of either protocol pays and repeats the call by itself.',
        ],
        code: `${keys(local)}\n${MPPX_COMMAND} ${url}/v1/speak -X POST -J '{"text":"Hello"}' -H 'accept: audio/mpeg' > hello.mp3\nturnpike pay '${url}/v1/read?summarize=true' --body '{"url":"https://example.com/article.txt"}' --max-pay 0.01`,
      },
      {
        title: 'With the Deepgram SDK',
        paragraphs: ['The contract is Deepgram’s: use @deepgram/sdk with this address and a fetch that pays.'],
        code: `// npm install @deepgram/sdk@5.13.0 ${MPPX_PACKAGES}
import { DeepgramClient } from '@deepgram/sdk';
import { Mppx, tempo } from 'mppx/client';
${local ? "import { createClient, http } from 'viem';\n" : ''}import { privateKeyToAccount } from 'viem/accounts';
${local ? "import { tempoLocalnet } from 'viem/chains';\n" : ''}
const account = privateKeyToAccount(process.env.MPPX_PRIVATE_KEY);
${local ? LOCAL_CLIENT : ''}const mppx = Mppx.create({ methods: [tempo({ account${local ? ', getClient' : ''} })], polyfill: false });
const deepgram = new DeepgramClient({ auth: false, baseUrl: '${url}', fetch: mppx.fetch });

const speech = await deepgram.speak.v1.audio.generate({ text: 'Hello there.' });
const heard = await deepgram.listen.v1.media.transcribeUrl({ url: 'https://example.com/talk.mp3', utterances: true });
const read = await deepgram.read.v1.text.analyze({ summarize: 'v2', topics: true, body: { text: 'A long text.' } });`,
      },
      {
        title: 'POST /v1/listen',
        paragraphs: [
          'Body: JSON {"url": "https://…"}, or the audio itself (WAV, MP3, FLAC, Ogg, Opus, AAC, M4A, MP4, WebM, AIFF, CAF, AMR; raw samples with encoding and sample_rate). At most 100 MB. URLs are fetched from the public network only, with at most three redirects.',
          'Query: model, language, detect_language, punctuate, smart_format, numerals, search, replace, paragraphs, utterances, utt_split, multichannel, summarize, topics, intents, sentiment, callback, callback_method, tag, extra, encoding, sample_rate, channels, and what the engine in use understands. Repeated keys are lists. Options that the engine cannot honour are named in metadata.warnings.',
        ],
        code: `curl -X POST '${url}/v1/listen?utterances=true' -H 'content-type: application/json' -d '{"url":"https://example.com/talk.mp3"}'`,
      },
      {
        title: 'POST /v1/speak',
        paragraphs: [
          'Body: JSON {"text": "…"}, at most 2,000 characters. Answers audio/mpeg as it is made; with Accept: application/json a JSON object {"audio": base64, "content_type", "metadata"}. A text that begins with <speak> is SSML: speak, p, s, break (10 s at most, 30 s together), sub, say-as (characters, spell-out, digits, telephone, cardinal, number), prosody with rate (0.7 to 1.5). What else is in it is refused by name, uncharged. Markup costs nothing, pauses neither: what is spoken is counted. Query: model, encoding, container, sample_rate, bit_rate, speed, callback. Headers: dg-request-id, dg-model-name, dg-char-count, x-warnings.',
        ],
        code: `curl -X POST '${url}/v1/speak' -H 'content-type: application/json' -d '{"text":"Hello there."}' -o hello.mp3`,
      },
      {
        title: 'POST /v1/read',
        paragraphs: [
          'Body: JSON {"text": "…"} or {"url": "…"} (text or audio), text/plain, or audio up to what the price pays for. Query: summarize, topics, intents, sentiment (at least one), custom_topic, custom_topic_mode, custom_intent, custom_intent_mode, language, callback.',
        ],
        code: `curl -X POST '${url}/v1/read?summarize=true&sentiment=true' -H 'content-type: application/json' -d '{"text":"…"}'`,
      },
      {
        title: 'Callbacks',
        paragraphs: [
          'With callback=https://… the work is done first; then the answer is {"request_id"} and the result is sent to the URL, again with growing pauses for a day until it is answered 2xx. It may arrive twice: compare request_id. Only finished work is charged.',
        ],
      },
      {
        title: 'Errors',
        paragraphs: [
          'JSON {"err_code", "err_msg", "request_id"}. 400 INVALID_QUERY_PARAMETER, INVALID_BODY, REMOTE_CONTENT_ERROR, UNSUPPORTED_AUDIO; 402 PAYMENT_LIMIT_EXCEEDED with needed_usd; 413 PAYLOAD_TOO_LARGE; 422 UNPROCESSABLE_OPTION, UNSUPPORTED_SSML; 429 TOO_MANY_REQUESTS with Retry-After; 502 UPSTREAM_ERROR; 503 SERVICE_UNAVAILABLE; 504 TIMEOUT.',
        ],
      },
      {
        title: 'Free',
        paragraphs: FREE_ROUTES.map(({ method, path, description }) => `${method} ${path}: ${description}.`),
      },
    ],
  };
}

export function guideMarkdown(settings: Settings, url: string): string {
  const { title, intro, sections } = guide(settings, url);
  const parts = sections.map(({ title: heading, paragraphs, code }) =>
    [`## ${heading}`, ...paragraphs, ...(code === undefined ? [] : [`\`\`\`\n${code}\n\`\`\``])].join('\n\n'),
  );
  return [`# ${title}`, `> ${intro}`, `Base address: ${url}`, ...parts, ''].join('\n\n');
}

export function guidePage(settings: Settings, url: string, prefix: string) {
  const { title, intro, sections } = guide(settings, url);
  const main = html`<h1>${title}</h1><p class="lead">${intro}</p>${sections.map(
    ({ title: heading, paragraphs, code }) =>
      html`<h2>${heading}</h2>${paragraphs.map((text) => html`<p>${text}</p>`)}${code === undefined ? '' : html`<pre>${code}</pre>`}`,
  )}`;
  return page({ title: 'How to use it', here: 'Docs', prefix, settings, main, width: 'read' });
}
