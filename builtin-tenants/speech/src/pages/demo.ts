/**
 * GET /: the page that tries the service: hear a text, read it, transcribe a URL, and see what each call cost.
 * It pays by itself only on the local network, from a test wallet whose key the operator gave for that.
 *
 * Addresses on it are relative to its own origin, which may be the shared one or the tenant's.
 */
import { PAID_ROUTES } from '../catalogue.ts';
import type { Settings } from '../settings.ts';
import { escapeHtml, page } from './guide.ts';

const SAMPLES: Record<string, string> = {
  'A day in the park':
    'The weather was warm this morning, and many people went to the park to enjoy the sun. Everyone was happy with the food and the service. They decided to come back again next week.',
  'A complaint':
    'I ordered a lamp two weeks ago and it arrived broken. I called three times and nobody could help me. Please cancel the order and send my money back.',
  'An announcement':
    'The library opens again on Monday at nine. There are new rooms for groups, and the cafe on the ground floor now serves lunch. Members may bring a guest.',
};

export function demoPage(settings: Settings, prefix: string): string {
  const prices = PAID_ROUTES.map(
    ({ path, priceUsd, metered }) => `<li><code>${path}</code>: ${metered ? 'at most ' : ''}${priceUsd} USDC</li>`,
  ).join('');
  const about = `<h1>Speech</h1><p>Transcription, text to speech and text intelligence, paid per call. The contract is Deepgram’s; there is no account.</p><ul>${prices}</ul><p><a href="${escapeHtml(prefix)}/docs">How to use it</a> · <a href="${escapeHtml(prefix)}/llms.txt">llms.txt</a> · <a href="${escapeHtml(prefix)}/openapi.json">openapi.json</a> · <a href="${escapeHtml(prefix)}/healthz">status</a></p>`;
  if (settings.demoWalletKey === undefined) {
    return page(
      'Speech',
      `${about}<p class="note">This page pays by itself only on a host with play money. Elsewhere any MPP or x402 client pays; see the guide.</p>`,
    );
  }
  const samples = Object.entries(SAMPLES)
    .map(([name, text]) => `<option value="${escapeHtml(text)}">${escapeHtml(name)}</option>`)
    .join('');
  const configuration = escapeHtml(JSON.stringify({ key: settings.demoWalletKey }));
  return page(
    'Speech',
    `${about}
<p class="note">Play money: every call on this page is paid from a test wallet of this host’s local network.</p>
<noscript><p class="note">The forms need JavaScript. How to call without it is in the guide.</p></noscript>
<section><h2>Hear a text, or have it read</h2><label for="sample">Sample</label><select id="sample">${samples}</select>
<label for="text">Text</label><textarea id="text" rows="5" maxlength="2000">${escapeHtml(Object.values(SAMPLES)[0] ?? '')}</textarea>
<p class="row"><button id="speak">Speak</button><button id="read">Read</button></p></section>
<section><h2>Transcribe audio at a URL</h2><label for="url">Address</label><input id="url" type="url" required placeholder="https://example.com/talk.mp3">
<p class="row"><button id="listen">Listen</button></p></section>
<section id="result"><h2>Answer</h2><p class="cost" id="cost" role="status">Nothing was paid yet.</p>
<audio id="player" controls hidden></audio><div id="plain"></div><details id="whole" hidden><summary>The whole answer</summary><pre id="answer"></pre></details></section>
<script type="module" src="${escapeHtml(prefix)}/demo.js" data-configuration="${configuration}"></script>`,
  );
}
