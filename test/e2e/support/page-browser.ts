/** A headless browser for pages: checks of every page, and a wallet in it with the key of a test wallet. */
import { existsSync } from 'node:fs';
import { createRequire } from 'node:module';
import path from 'node:path';
import { type Browser, type BrowserContext, chromium, type Page } from 'playwright-core';
import { createWalletClient, http } from 'viem';
import type { PrivateKeyAccount } from 'viem/accounts';
import { expect } from 'vitest';
import type { LocalNetworkFile } from './host.ts';

const BROWSERS = ['/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome'];
const AXE = createRequire(import.meta.url).resolve('axe-core/axe.min.js');

export const WIDTHS = [390, 1280, 1920] as const;
export const SCHEMES = ['light', 'dark'] as const;

/** @param args more arguments of Chromium */
export async function openBrowser(args: string[] = []): Promise<Browser> {
  const executablePath = process.env.CHROMIUM ?? BROWSERS.find(existsSync);
  if (!executablePath) throw new Error('no Chromium: install it (apt-get install chromium) or set CHROMIUM');
  return chromium.launch({
    executablePath,
    args: [
      '--no-sandbox',
      '--disable-background-networking',
      '--disable-quic',
      '--no-first-run',
      '--host-resolver-rules=MAP *.localhost 127.0.0.1',
      ...args,
    ],
  });
}

/** Playwright waits for thirty seconds, which are short where other work keeps the machine busy. */
const PATIENCE_MS = 120_000;

export async function patientPage(context: Pick<BrowserContext, 'newPage'>): Promise<Page> {
  const page = await context.newPage();
  page.setDefaultTimeout(PATIENCE_MS);
  return page;
}

export interface Opened {
  page: Page;
  /** Errors on the page's console, and refused or failed loads. */
  complaints: string[];
  /** Requests that left the machine's own names. */
  outside: string[];
}

/** A page that notes what the browser complained about and asked for. */
export async function newPage(context: BrowserContext): Promise<Opened> {
  const page = await patientPage(context);
  const complaints: string[] = [];
  const outside: string[] = [];
  page.on('console', (message) => {
    // The status of a page that is a problem is what is looked at.
    if (message.type() === 'error' && !/status of 4\d\d|status of 5\d\d/.test(message.text()))
      complaints.push(message.text());
  });
  page.on('pageerror', (error) => complaints.push(error.message));
  page.on('request', (request) => {
    const url = new URL(request.url());
    if (/^https?:$/.test(url.protocol) && !/^(?:127\.0\.0\.1|(?:.*\.)?localhost)$/.test(url.hostname))
      outside.push(request.url());
  });
  return { page, complaints, outside };
}

/** Headings of boxes that cover one another. */
const OVERLAPPING = `(() => {
  const shown = [...document.querySelectorAll('main .card')].filter((card) => card.checkVisibility());
  const cards = shown.map((card) => [card, card.getBoundingClientRect()]);
  const cover = (a, b) => a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 1 && b.top < a.bottom - 1;
  return cards.flatMap(([card, box], index) => cards.slice(index + 1)
    .filter(([other, its]) => !card.contains(other) && cover(box, its))
    .map(([other]) => [card, other].map(({ textContent }) => textContent.trim().slice(0, 40)).join(' / ')));
})()`;

/** Notes what the focus comes to, and answers how much it can come to. Of a group of radio buttons it comes to one. */
const FOLLOW_FOCUS = `(() => {
  const kinds = 'a[href], button, input:not([type=hidden]), select, textarea, summary, [tabindex]:not([tabindex^="-"])';
  const groups = new Set();
  const all = [...document.querySelectorAll(kinds)].filter((one) => {
    if (one.disabled || !one.checkVisibility({ visibilityProperty: true }) || one.closest('[inert]')) return false;
    if (one.type !== 'radio') return true;
    const first = !groups.has(one.name);
    groups.add(one.name);
    return first;
  });
  const reached = new Set();
  const unmarked = [];
  const listener = ({ target }) => {
    // What is inside of a closed shadow is its own affair.
    if (target.localName.includes('-')) return;
    reached.add(target.type === 'radio' ? target.name : target);
    const { outlineStyle, outlineWidth, boxShadow } = getComputedStyle(target);
    const box = target.getBoundingClientRect();
    const marked = (outlineStyle !== 'none' && parseFloat(outlineWidth) > 0) || boxShadow !== 'none';
    if (!marked || box.width === 0 || box.right <= 0 || box.left >= innerWidth) unmarked.push(target);
  };
  document.body.tabIndex = -1;
  document.body.focus();
  document.body.removeAttribute('tabindex');
  document.addEventListener('focusin', listener);
  const text = (one) => one.outerHTML.slice(0, 120);
  window.focusFollowed = () => {
    document.removeEventListener('focusin', listener);
    document.activeElement?.blur();
    return {
      unreached: all.filter((one) => !reached.has(one.type === 'radio' ? one.name : one)).map(text),
      unmarked: unmarked.map(text),
    };
  };
  return all.length;
})()`;

/** Every control is reached by Tab alone, and is marked when it is. */
export async function tabThrough(page: Page, name: string): Promise<void> {
  const controls = (await page.evaluate(FOLLOW_FOCUS)) as number;
  // Scrolled regions can be reached, too.
  for (let presses = 0; presses < controls + 5; presses++) await page.keyboard.press('Tab');
  expect(await page.evaluate('window.focusFollowed()'), `${name} by keyboard`).toEqual({ unreached: [], unmarked: [] });
}

/**
 * Looks at the page in both schemes and all widths: nothing runs over, axe finds nothing, Tab reaches everything, nothing
 * was asked elsewhere.
 * Pictures are kept where TURNPIKE_SCREENSHOTS names a folder.
 */
export async function lookAt({ page, complaints, outside }: Opened, name: string): Promise<void> {
  for (const width of WIDTHS) {
    await page.setViewportSize({ width, height: 900 });
    const over = await page.evaluate(
      '[document.documentElement.scrollWidth - innerWidth, ...[...document.querySelectorAll("main *")].filter((one) => one.scrollWidth > one.clientWidth + 1 && getComputedStyle(one).overflowX !== "visible" && !one.matches(".sr, .sr *, thead, thead *, input, textarea, select")).map((one) => one.outerHTML.slice(0, 80))]',
    );
    expect(over, `${name} at ${width}`).toEqual([expect.any(Number)]);
    expect((over as number[])[0], `${name} at ${width}`).toBeLessThanOrEqual(0);
    expect(await page.evaluate(OVERLAPPING), `${name} at ${width}`).toEqual([]);
    for (const colorScheme of SCHEMES) {
      await page.emulateMedia({ colorScheme });
      const folder = process.env.TURNPIKE_SCREENSHOTS;
      if (folder)
        await page.screenshot({ path: path.join(folder, `${name}-${width}-${colorScheme}.png`), fullPage: true });
      // Widths differ in layout, schemes in colours: each once.
      const what = `${name} at ${width}, ${colorScheme}`;
      if (width === 390 && colorScheme === 'light') expect(await violations(page), what).toEqual([]);
      if (width === 1280 && colorScheme === 'dark') expect(await violations(page, COLOURS), what).toEqual([]);
    }
    if (width === 1280) await tabThrough(page, name);
  }
  expect(complaints, name).toEqual([]);
  expect(outside, name).toEqual([]);
}

/** Options of axe: what depends on colours. */
export const COLOURS = { runOnly: ['color-contrast', 'link-in-text-block'] };

/** What axe finds on the page. @param options of axe. It runs in a world of its own: policies of the page do not matter, and stay as they are. */
export async function violations(page: Page, options: object = {}): Promise<string[]> {
  const session = await page.context().newCDPSession(page);
  try {
    const { frameTree } = await session.send('Page.getFrameTree');
    const { executionContextId } = await session.send('Page.createIsolatedWorld', { frameId: frameTree.frame.id });
    const { readFile } = await import('node:fs/promises');
    const run = async (expression: string) =>
      session.send('Runtime.evaluate', {
        expression,
        contextId: executionContextId,
        awaitPromise: true,
        returnByValue: true,
      });
    await run(await readFile(AXE, 'utf8'));
    const { result, exceptionDetails } = await run(
      `axe.run(document, ${JSON.stringify({ resultTypes: ['violations'], ...options })}).then(({ violations }) => violations.map(({ id, nodes }) => [id, ...nodes.slice(0, 3).map(({ html, failureSummary }) => html.slice(0, 160) + failureSummary)].join(" ")))`,
    );
    if (exceptionDetails) throw new Error(exceptionDetails.exception?.description ?? exceptionDetails.text);
    return result.value as string[];
  } finally {
    await session.detach();
  }
}

export interface PageWallet {
  /** Methods that the page asked for, in order. */
  asked: string[];
  /** Answers in place of the wallet; undefined: the wallet answers. */
  instead: (method: string) => unknown;
  chainId: number;
}

/** Puts a wallet into every page of the context that announces itself (EIP-6963) and signs with the account's key. */
export async function addWallet(
  context: BrowserContext,
  network: LocalNetworkFile,
  account: PrivateKeyAccount,
): Promise<PageWallet> {
  const wallet: PageWallet = { asked: [], instead: () => undefined, chainId: Number(network.x402.network.slice(7)) };
  let id = 0;
  await context.exposeFunction('askWallet', async (method: string, params: unknown[]) => {
    wallet.asked.push(method);
    try {
      const instead = wallet.instead(method);
      if (instead !== undefined) return { result: instead };
      switch (method) {
        case 'eth_requestAccounts':
          return { result: [account.address] };
        case 'eth_chainId':
          return { result: `0x${wallet.chainId.toString(16)}` };
        case 'wallet_switchEthereumChain':
          throw Object.assign(new Error('unknown chain'), { code: 4902 });
        case 'wallet_addEthereumChain':
          wallet.chainId = Number((params[0] as { chainId: string }).chainId);
          return { result: null };
        case 'personal_sign':
          return { result: await account.signMessage({ message: { raw: params[0] as `0x${string}` } }) };
        case 'eth_sendTransaction': {
          const [{ to, data }] = params as [{ to: `0x${string}`; data: `0x${string}` }];
          const sender = createWalletClient({ account, transport: http(network.rpcUrl) });
          return { result: await sender.sendTransaction({ to, data, chain: null }) };
        }
        case 'eth_signTypedData_v4':
          return { result: await account.signTypedData(JSON.parse(params[1] as string)) };
        default: {
          id += 1;
          const body = JSON.stringify({ jsonrpc: '2.0', id, method, params });
          const headers = { 'content-type': 'application/json' };
          const { result } = (await (await fetch(network.rpcUrl, { method: 'POST', headers, body })).json()) as {
            result: unknown;
          };
          return { result };
        }
      }
    } catch (error) {
      const { message, code } = error as Error & { code?: number };
      return { error: { message, code } };
    }
  });
  await context.addInitScript(`(() => {
  const provider = { request: async ({ method, params }) => {
    const { result, error } = await window.askWallet(method, params ?? []);
    if (error) throw Object.assign(new Error(error.message), { code: error.code });
    return result;
  } };
  const info = { uuid: 'a', name: 'Test Wallet', icon: 'data:,', rdns: 'test' };
  const announce = () => window.dispatchEvent(new CustomEvent('eip6963:announceProvider', { detail: Object.freeze({ info, provider }) }));
  window.addEventListener('eip6963:requestProvider', announce);
})()`);
  return wallet;
}
