/**
 * The 402 as a page: the price, what for, to whom, and how to pay from a terminal or with a wallet in the browser.
 *
 * The wallet signs one transfer (x402 `exact`): it costs the payer no gas, and what a metered call does not use comes
 * back. The page keeps it in a cookie of this one path and loads itself again: control reads the payment from there
 * (builtin-tenants/kit/payment-cookie.ts), and the browser shows the answer as it would show any other. A signature that
 * is sent again pays nothing again.
 */
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { html, type Part, raw, tabs } from '../../builtin-tenants/kit/look/layout.ts';
import { MPPX_COMMAND } from '../../builtin-tenants/kit/stock-clients.ts';
import type { ProblemDocument } from '../shared/problem.ts';
import { LOOK_HASH } from './look.ts';
import { ALONE_HEADERS, framed } from './problem-page.ts';

/** Wants `WALLET_ROOT` before it: the tree with the card. */
export const WALLET_SCRIPT = inlined('x402-exact.js', 'wallet.js');

const SCRIPT = `const WALLET_ROOT = document;\n${WALLET_SCRIPT}`;

/** As the page of a problem, with the one script; a page in a frame could be laid over another to be clicked. */
const HEADERS = {
  ...ALONE_HEADERS,
  'content-security-policy': `default-src 'none'; style-src ${LOOK_HASH}; script-src 'sha256-${createHash('sha256').update(SCRIPT).digest('base64')}'; img-src data:; form-action 'none'; base-uri 'none'; frame-ancestors 'none'`,
  'x-frame-options': 'DENY',
};

/** What a wallet is told of a chain that it does not know. */
export interface WalletChain {
  /** CAIP-2, such as `eip155:8453`. */
  network: string;
  name: string;
  nativeCurrency: { name: string; symbol: string; decimals: number };
  /** One that anybody may use. */
  rpcUrl: string;
}

interface Accepted {
  scheme: string;
  network: string;
  asset: string;
  amount: string;
  payTo: string;
  maxTimeoutSeconds: number;
  extra?: { name?: string; version?: string; assetTransferMethod?: string; facilitatorAddress?: string };
}

interface Required {
  resource?: { url?: string; description?: string };
  accepts?: Accepted[];
}

export interface PaymentPageParts {
  document: ProblemDocument;
  /** `PAYMENT-REQUIRED`: what a wallet can sign; undefined where only MPP is offered. */
  required: string | undefined;
  /** Name of the payment network. */
  network: string;
  chain: WalletChain | undefined;
  method: string;
  /** URL as the caller sees it. */
  url: string;
  /** Origin of the host. */
  home: string;
  /** Whether programs can call that URL. */
  programs: boolean;
  /** Real time, ms. */
  now: number;
}

export function paymentPage(parts: PaymentPageParts): { headers: Record<string, string>; body: string } {
  const { document, network, chain, method, url, home } = parts;
  const { what, isMost, price, payee, proof, refusal, testMoney, wallet, terminal, hasScript } = piecesOf(parts);
  const main = html`<p class="row"><span class="badge warn">402</span><code>${document.code}</code></p>
<h1>${what}</h1>
${refusal}
${proof ? '' : html`<p class="price">${isMost ? 'at most' : ''} <strong>${price} USD</strong></p>`}
${testMoney}
<dl class="facts">
<dt>For</dt><dd><code>${method} ${url}</code></dd>
${payee === undefined || proof ? '' : html`<dt>Paid to</dt><dd><code>${payee}</code></dd>`}
<dt>Network</dt><dd>${chain && payee !== undefined ? `${chain.name} (${network})` : network}</dd>
</dl>
${wallet}
${terminal}${document.requestId === undefined ? '' : html`<p class="soft small">Request <code>${document.requestId}</code></p>`}`;
  const script = hasScript ? raw(`<script type="module">${SCRIPT}</script>`) : '';
  return { headers: HEADERS, body: framed(what, html`${main}${script}`, home) };
}

/** What a page of a 402 consists of, whoever designed it. */
export function piecesOf(parts: PaymentPageParts) {
  const { document, required, chain, method, url, home, programs, now } = parts;
  const { amount = '', mode } = (document.price ?? {}) as { amount?: string; mode?: string };
  const { resource, accepts = [] } = decoded(required);
  const refused = document.code === 'payment_invalid';
  const proof = document.code === 'proof_required' || amount === '0.00';
  const offer = method === 'GET' && !proof ? signable(accepts, chain) : undefined;
  const isMost = mode === 'metered';
  // Both are said elsewhere on the page.
  const description = (resource?.description ?? '')
    .replace(/^\[TEST MONEY\] /, '')
    .replace(/ \(at most; [^()]*\)$/, '');
  const none =
    method === 'GET' && !proof
      ? html`<p class="soft">A browser’s wallet cannot sign for this one; a program pays it.</p>`
      : '';
  return {
    description,
    what: description || String(document.title),
    price: amount,
    isMost,
    payee: accepts[0]?.payTo,
    proof,
    refusal: refused || proof ? html`<p class="note ${refused ? 'bad' : ''}" role="alert">${document.detail}</p>` : '',
    testMoney: document.testMoney ? html`<p class="note warn">Test money: what is paid here is worth nothing.</p>` : '',
    wallet: offer ? walletPart(offer, isMost, chain, required ?? '', refused, now) : none,
    /** Whether `WALLET_SCRIPT` belongs behind it. */
    hasScript: offer !== undefined,
    terminal: programs
      ? html`<h2>${offer ? 'Or from a terminal' : 'From a terminal'}</h2>
${commands(method, url, amount || '0', proof)}
<p class="soft">Any MPP or x402 client does the same: <a href="${home}/docs">how to pay</a>.</p>
`
      : '',
  };
}

/** What a wallet in the browser can sign without a transaction. */
function signable(accepts: readonly Accepted[], chain: WalletChain | undefined): Accepted | undefined {
  return accepts.find(
    ({ scheme, network, extra }) =>
      scheme === 'exact' && network === chain?.network && extra?.assetTransferMethod !== 'permit2',
  );
}

function walletPart(
  offer: Accepted,
  isMost: boolean,
  chain: WalletChain | undefined,
  required: string,
  refused: boolean,
  now: number,
) {
  const data = JSON.stringify({ required, offer, isMost, chain, refused, now: Math.floor(now / 1000) });
  const name = offer.extra?.name ?? 'token';
  const minutes = Math.round(offer.maxTimeoutSeconds / 60);
  return html`<section class="card" id="wallet" data-pay="${data}">
<h2>Pay with a wallet in this browser</h2>
<p id="wallet-status" role="status">Looking for a wallet …</p>
<p class="row" id="wallet-list"></p>
<noscript><p class="note">Wallets need JavaScript.</p></noscript>
<details><summary>What you will sign</summary>
<p>One transfer of exactly this amount, good for ${minutes} minutes and for once. No gas, no transaction of yours: this host sends it when the answer is there, and not at all if the work fails.${isMost ? ' What the call does not use comes back to your wallet.' : ''}</p>
<dl class="facts">
<dt>Transfer</dt><dd>${atomic(offer.amount)} ${name}</dd>
<dt>To</dt><dd><code>${offer.payTo}</code></dd>
<dt>Token</dt><dd><code>${offer.asset}</code></dd>
<dt>Chain</dt><dd>${chain?.name ?? ''} (${offer.network})</dd>
</dl></details>
</section>`;
}

function commands(method: string, url: string, price: string, proof: boolean): Part {
  const flags = method === 'GET' ? '' : ` -X ${method}`;
  const quoted = `'${url.replaceAll("'", "'\\''")}'`;
  const turnpike = html`<pre>turnpike pay ${quoted}${flags}${proof ? '' : ` --max-pay ${price}`}</pre>`;
  const mppx = html`<pre>export MPPX_PRIVATE_KEY=0x…\n${MPPX_COMMAND} ${quoted}${flags}</pre>`;
  const panels = [
    { name: 'mppx', body: mppx },
    { name: 'turnpike', body: turnpike },
  ];
  return tabs('command', 'Command', proof ? panels.slice(0, 1) : panels.reverse());
}

/** Atomic units of a token with six decimals. */
function atomic(amount: string): string {
  const digits = /^\d{1,78}$/.test(amount) ? amount.padStart(7, '0') : '0000000';
  return `${digits.slice(0, -6)}.${digits.slice(-6).replace(/0{1,4}$/, '')}`;
}

/** Our own header, which carries what a tenant wrote. */
function decoded(required: string | undefined): Required {
  if (required === undefined) return {};
  return JSON.parse(Buffer.from(required, 'base64').toString('utf8')) as Required;
}

/** Modules as one script, each after those that it imports. */
function inlined(...names: string[]): string {
  return names
    .map((name) => readFileSync(new URL(name, import.meta.url), 'utf8'))
    .join('')
    .replace(/^import .*\n/gm, '')
    .replace(/^export /gm, '');
}
