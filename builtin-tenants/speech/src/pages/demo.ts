/**
 * GET /: the page that tries the service: hear a text, read it, transcribe a URL, and see what each call cost.
 * It pays by itself only on the local network, from a test wallet whose key the operator gave for that.
 *
 * Addresses on it are relative to its own origin, which may be the shared one or the tenant's.
 */
import { html } from '../../../kit/look/layout.ts';
import { PAID_ROUTES } from '../catalogue.ts';
import type { Settings } from '../settings.ts';
import { listener, type OperationHealth } from './health.ts';
import { page } from './layout.ts';

const SAMPLES: Record<string, string> = {
  'A day in the park':
    'The weather was warm this morning, and many people went to the park to enjoy the sun. Everyone was happy with the food and the service. They decided to come back again next week.',
  'A complaint':
    'I ordered a lamp two weeks ago and it arrived broken. I called three times and nobody could help me. Please cancel the order and send my money back.',
  'An announcement':
    'The library opens again on Monday at nine. There are new rooms for groups, and the cafe on the ground floor now serves lunch. Members may bring a guest.',
};

/** Of espeak-ng and flite, which come with a Debian host. */
const VOICES = [
  'espeak-ng-en',
  'espeak-ng-de',
  'espeak-ng-fr',
  'espeak-ng-es',
  'espeak-ng-it',
  'flite-slt',
  'flite-kal',
];

function readPrice(): string {
  return PAID_ROUTES.find(({ path }) => path === '/v1/read')?.priceUsd ?? '';
}

/** Who transcribes, and what to know of it before anything is paid. */
function listening(health: OperationHealth) {
  if (!health.ok) return html`<p class="note warn">Nothing is transcribed at present. ${health.fix ?? ''}</p>`;
  return html`<p class="soft">Transcribed by <code>${listener(health)}</code>.</p>
${health.warning === undefined ? '' : html`<p class="note warn">${health.warning}</p>`}`;
}

/** micro-USD a second, as USD a minute. */
function aMinute(perSecond: number): string {
  return ((perSecond * 60) / 1_000_000).toFixed(6).replace(/0{1,4}$/, '');
}

/** @param listen who transcribes at present */
export function demoPage(settings: Settings, listen: OperationHealth, prefix: string) {
  const about = html`<h1>Speech</h1>
<p class="lead">Transcription, text to speech and text intelligence, paid per call. The contract is Deepgram’s; there is no account.</p>
<table class="stack"><thead><tr><th>Call</th><th>What</th><th class="number">Price</th></tr></thead><tbody>
${PAID_ROUTES.map(
  ({ method, path, priceUsd, metered, description }) =>
    html`<tr><td data-label="Call"><code>${method} ${path}</code></td><td data-label="What">${description}</td><td data-label="Price" class="number">${metered ? 'at most ' : ''}${priceUsd} USDC</td></tr>`,
)}
</tbody></table>`;
  if (settings.demoWalletKey === undefined) {
    const elsewhere = html`${listening(listen)}
<p class="note">This page pays by itself only on a host with play money. Elsewhere any MPP or x402 client pays; see <a href="${prefix}/docs">the docs</a>.</p>
<pre>turnpike pay ${settings.publicUrl ?? ''}/v1/listen --max-pay 0.05 -H 'content-type: audio/wav' -d @talk.wav
turnpike pay ${settings.publicUrl ?? ''}/v1/speak --max-pay 0.05 -d '{"text":"Hello there."}' > hello.mp3</pre>`;
    return page({ title: 'Speech', here: 'Speech', prefix, settings, main: html`${about}${elsewhere}` });
  }
  const { perSecond, perMillionCharacters } = settings;
  const live = aMinute(perSecond);
  const configuration = JSON.stringify({ key: settings.demoWalletKey, perSecond, perMillionCharacters });
  return page({
    title: 'Speech',
    here: 'Speech',
    prefix,
    settings,
    head: html`<script type="module" src="${prefix}/demo.js" data-configuration="${configuration}"></script>`,
    main: html`${about}
<p class="note warn">Play money: every call on this page is paid from a test wallet of this host’s local network.</p>
<noscript><p class="note">The forms need JavaScript. How to call without it is in the docs.</p></noscript>
<section class="card"><h2>Hear a text, or have it read</h2>
<label class="field">Sample <select id="sample">${Object.entries(SAMPLES).map(([name, text]) => html`<option value="${text}">${name}</option>`)}</select></label>
<label class="field">Text <textarea id="text" rows="5" maxlength="2000">${Object.values(SAMPLES)[0] ?? ''}</textarea></label>
<label class="field">Voice <input id="voice" list="voices" autocomplete="off" placeholder="the usual one"><span class="hint">A voice of the engine in use, such as espeak-ng-de; another language needs a voice that has it.</span></label>
<datalist id="voices">${VOICES.map((voice) => html`<option value="${voice}"></option>`)}</datalist>
<p class="soft" id="speak-price" role="status"></p>
<p class="row"><button id="speak">Speak</button><button id="read">Read</button><span class="soft small">Read costs ${readPrice()} USDC.</span></p></section>
<section class="card"><h2>Transcribe a file or your own voice</h2>
${listening(listen)}
<label class="field">File <input id="file" type="file" accept="audio/*,video/mp4,video/webm"></label>
<p class="row"><button id="record" class="quiet" aria-pressed="false">Record</button><button id="transcribe" disabled>Transcribe</button><button id="stream" class="quiet" disabled>Transcribe as it comes</button></p>
<p class="row"><button id="live" class="quiet" aria-pressed="false">Transcribe my voice live</button><span class="soft small">By a WebSocket: the words come with their times, and ${live} USDC a minute is charged while it is open.</span></p>
<p class="soft" id="listen-price" role="status">Choose a file, or record.</p></section>
<section class="card"><h2>Transcribe audio at a URL</h2>
<label class="field">Address <input id="url" type="url" required placeholder="https://example.com/talk.mp3"></label>
<p class="row"><button id="listen">Listen</button></p></section>
<section id="result" class="card"><h2>Answer</h2><p id="cost" role="status">Nothing was paid yet.</p>
<audio id="player" controls hidden></audio><div id="plain" role="log" aria-label="In words"></div><details id="whole" hidden><summary>The whole answer</summary><pre id="answer"></pre></details></section>`,
  });
}
