/** What the README, SELLING.md and the host’s pages print for stock clients, run word by word in a folder of its own. */
import { randomBytes } from 'node:crypto';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { createKeyPairSignerFromPrivateKeyBytes } from '@solana/kit';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { MPPX_COMMAND, MPPX_PACKAGES, X402_PACKAGES } from '../../builtin-tenants/kit/stock-clients.ts';
import { deploy, mppFetch } from './support/callers.ts';
import { type EmptyFolder, emptyFolder } from './support/empty-folder.ts';
import { startHost, type TestHost } from './support/host.ts';
import { fillFeePayer, type SolanaNode, solanaFlags, startSolanaNode } from './support/solana-node.ts';
import { until } from './support/until.ts';

let solana: SolanaNode;
let host: TestHost;
let folder: EmptyFolder;

beforeAll(async () => {
  solana = await startSolanaNode();
  const { address } = await solana.wallet(0n);
  const flags = solanaFlags(solana, address);
  [host, folder] = await Promise.all([startHost({ builtins: ['speech', 'pay', 'deals'], flags }), emptyFolder()]);
  await until(async () => ((await fetch(`${host.url}/speech/healthz`)).ok ? true : undefined), host.output);
  await deploy(mppFetch(host.network, 3), host.url, {
    slug: 'shop',
    // It answers every path, and has no description of its own.
    code: `export default { fetch: ({ url }) => new URL(url).pathname === '/events'
      ? new Response('data: 1\\n\\ndata: 2\\n\\n', { headers: { 'content-type': 'text/event-stream' } })
      : new Response('hello', { headers: { 'x-charge': '0.01' } }) }`,
    paidRoutes: [
      { method: 'GET', path: '/a/*', price: '0.01', solana: address },
      { method: 'GET', path: '/metered', price: '0.03', mode: 'metered', solana: address },
      { method: 'GET', path: '/events', price: '0.03', perEvent: '0.001', mode: 'metered', solana: address },
    ],
  });
});
afterAll(async () => {
  await Promise.all([host?.stop(), folder?.remove(), solana?.close()]);
});

const page = async (name: string) => await (await fetch(`${host.url}${name}`)).text();
const privateKey = (wallet: number) => host.network.wallets[wallet]?.privateKey ?? '';

/** The first block of code under a heading, or after any text. */
function block(text: string, after: string): string {
  const from = text.indexOf(after);
  const code = from < 0 ? undefined : /```\w*\n([\s\S]*?)\n```/.exec(text.slice(from))?.[1];
  if (code === undefined) throw new Error(`there is no code after "${after}" in:\n${text}`);
  return code;
}

/** Fills in what a reader takes from local-network.json. */
function filledIn(lines: string, wallet: number): string {
  return lines
    .replace(/MPPX_RPC_URL=http:\/\/\S*…/, `MPPX_RPC_URL=${host.network.rpcUrl}`)
    .replace('PRIVATE_KEY=0x…', `PRIVATE_KEY=${privateKey(wallet)}`);
}

/** The installation that a module names in its first line. */
async function install(module: string): Promise<void> {
  const command = /^\/\/ (npm install .*)$/m.exec(module)?.[1];
  expect(command).toBeTruthy();
  await folder.sh(`${command} --no-audit --no-fund`);
}

test('llms.txt: the lines with the mppx command deploy', async () => {
  const output = await folder.sh(filledIn(block(await page('/llms.txt'), '## Deploy with the mppx command'), 0));
  expect(output).toContain('"slug":"hello"');
  expect(output).toMatch(/hi$/);
});

test('README: the line with the mppx command deploys', async () => {
  const lines = block(await readFile('README.md', 'utf8'), 'Any other client works as well');
  const output = await folder.sh(filledIn(lines, 0).replace('http://localhost:8402', host.url));
  expect(output).toContain('"slug":"hey"');
});

test('README: the lines from nothing to a project deploy it, with its tables', async () => {
  const lines = block(await readFile('README.md', 'utf8'), 'From nothing:').replaceAll('../my-project', './my-project');
  const checkout = `shopt -s expand_aliases\n${lines.replace('$PWD', process.cwd())}`;
  const output = await folder.sh(checkout, { TURNPIKE_URL: host.url, TURNPIKE_DATA: host.data });
  expect(output).toMatch(/0001_notes\.sql\nmy-notes +active/);
  const note = await fetch(`${host.url}/my-notes/`, { method: 'POST', body: 'a note' });
  expect(await note.json()).toEqual([{ id: 1, text: 'a note' }]);
});

test('README and llms.txt: the command as a package deploys a paid API, from an empty folder', async () => {
  const prefix = await mkdtemp(path.join(tmpdir(), 'tp-global-'));
  try {
    const env = {
      npm_config_prefix: prefix,
      npm_config_audit: 'false',
      npm_config_fund: 'false',
      TURNPIKE_DATA: host.data,
      PATH: `${prefix}/bin:${process.env.PATH}`,
    };
    const lines = block(await readFile('README.md', 'utf8'), 'Without a checkout');
    expect(lines.split('\n')).toHaveLength(4);
    const output = await folder.sh(lines.replace('http://localhost:8402', host.url), env);
    expect(output).toMatch(/\/my-paid-api\/\s*$/);
    expect((await fetch(`${host.url}/my-paid-api/count`, { method: 'POST', body: 'a b' })).status).toBe(402);
    const paid = await folder.sh(`turnpike --yes pay -X POST -d 'a b c' ${host.url}/my-paid-api/count`, env);
    expect(paid).toContain('"words":3');
    const told = block(await page('/llms.txt'), '## Deploy a project with the turnpike command');
    await folder.sh(`rm -r my-api; ${told.replace('turnpike deploy', 'turnpike deploy --slug as-told')}`, env);
    expect(await (await fetch(`${host.url}/as-told/`)).text()).toContain('POST a text');
  } finally {
    await rm(prefix, { recursive: true, force: true });
  }
});

test('llms.txt: the program with @x402/fetch deploys, with its defaults', async () => {
  const module = block(await page('/llms.txt'), '## Deploy with @x402/fetch');
  await install(module);
  const env = { PRIVATE_KEY: privateKey(1) };
  expect(await folder.run(module, env)).toMatch(/^201 /);
});

/** What is sold, as the README names it -> how it is asked for; `-N` makes each client's slug its own. */
const SOLD: Record<string, [method: string, path: string, body?: object]> = {
  'A deploy': [
    'POST',
    '/_admin/deploy',
    { slug: 'cell-N', code: 'export default { fetch: () => new Response("hi") }' },
  ],
  'A renewal': ['POST', '/_admin/renew/cell-N'],
  'A route of a fixed price': ['GET', '/shop/a/b?N'],
  'A metered route': ['GET', '/shop/metered?N'],
  'A stream of events': ['GET', '/shop/events?N'],
  'What a handler prices itself': ['GET', '/market/?N'],
  'A call through the pay platform': ['GET', '/pay/deals/v1/rules?N'],
  Speech: ['POST', '/speech/v1/speak', { text: 'A good day, client N.' }],
};

/** A wallet with USDC; and the host's own gets what fees take. */
async function payerOnSolana(): Promise<number[]> {
  await fillFeePayer(solana, host);
  const key = randomBytes(32);
  await solana.holder((await createKeyPairSignerFromPrivateKeyBytes(key)).address, 1_000_000n);
  return [...key];
}

test('SELLING.md: which client pays for what', async () => {
  await deploy(mppFetch(host.network, 3), host.url, {
    slug: 'market',
    code: `export default { async fetch(request, env) {
  const caller = Object.fromEntries(['authorization', 'payment-signature', 'x-payment'].flatMap((name) => request.headers.has(name) ? [[name, request.headers.get(name)]] : []));
  const ask = (path, body, headers) => env.PAYMENTS.fetch('http://payments' + path, { method: 'POST', headers: { 'content-type': 'application/json', ...headers }, body: JSON.stringify(body) });
  const order = { amount: '0.02', bind: request.url, resource: request.url, x402v1: true };
  const verified = await ask('/verify', order, caller);
  if (!verified.ok) return ask('/challenge', order);
  const { hold } = await verified.json();
  const { headers } = await (await ask('/capture', { hold })).json();
  return new Response('sold', { headers });
} }`,
    bindings: { payments: true },
  });
  const rules = `${host.url}/pay/deals/v1/rules`;
  await until(async () => (await fetch(rules)).status === 402 || undefined, host.output);
  const said = /\n\| Sold here \|([\s\S]*?)\n\n/.exec(await readFile('host/payments/SELLING.md', 'utf8'))?.[0] ?? '';
  const [head = [], , ...rows] = said
    .trim()
    .split('\n')
    .map((line) => line.slice(2, -2).split(' | '));
  expect(rows.map(([name]) => name)).toEqual(Object.keys(SOLD));
  // x402 1.2 names wagmi for pages that it does not load here: 500 MB of packages.
  await folder.sh(
    `[ -f package.json ] || echo {} > package.json; npm pkg set overrides.wagmi=npm:isows@1.0.7; npm install ${MPPX_PACKAGES} ${X402_PACKAGES} @x402/svm@2.27.0 @solana/kit@5.5.1 x402-fetch@1.2.0 x402-axios@0.7.2 axios@1.13.2 @faremeter/fetch@0.22.0 @faremeter/payment-evm@0.22.0 @faremeter/wallet-evm@0.22.0 --ignore-scripts --no-audit --no-fund`,
  );
  const settings = {
    HOST: host.url,
    RPC: host.network.rpcUrl,
    CHAIN: String(host.network.chainId),
    SOLD: JSON.stringify(Object.entries(SOLD)),
    SOLANA: JSON.stringify({ rpcUrl: solana.url, key: await payerOnSolana() }),
    KEYS: JSON.stringify([0, 1, 2, 4, 5, 6, 7, 3].map((wallet) => privateKey(wallet))),
  };
  const { found, why } = JSON.parse(
    await folder.run(await readFile('test/e2e/fixtures/clients.mjs', 'utf8'), settings),
  );
  const columns = head.slice(1);
  expect(Object.keys(found)).toEqual(columns);
  const cells = rows.flatMap(([name = '', ...row]) => row.map((cell, index) => `${name}, ${columns[index]}: ${cell}`));
  const bought = rows.flatMap(([name = '']) => columns.map((column) => `${name}, ${column}: ${found[column][name]}`));
  expect(bought, why.join('\n')).toEqual(cells);
  // What a client does not buy, it has found no offer of its kind for.
  const noOffer = /No method found for challenges|No network\/scheme registered/;
  expect(why.filter((reason: string) => !noOffer.test(reason))).toEqual([]);
  expect(why).toHaveLength(bought.filter((cell) => cell.endsWith(': no')).length);
});

test('/speech/docs: the command speaks, and the program with the Deepgram SDK speaks and reads', async () => {
  const guide = await page('/speech/llms.txt');
  // The checkout's own command is not here.
  const lines = block(guide, '## How to pay').replace(/^turnpike .*$/m, 'head -c 3 hello.mp3');
  expect(await folder.sh(filledIn(lines, 2))).toMatch(/^(ID3|\ufffd)/);
  // The address in it is only an example.
  const module = block(guide, '## With the Deepgram SDK').replace(/^.*transcribeUrl.*$/m, '');
  await install(module);
  const shown = 'console.log((await speech.arrayBuffer()).byteLength, JSON.stringify(read.results));';
  const output = await folder.run(`${module}\n${shown}`, {
    MPPX_RPC_URL: host.network.rpcUrl,
    MPPX_PRIVATE_KEY: privateKey(2),
  });
  expect(output).toMatch(/^[1-9]\d{3,} \{/);
});

test('redocly finds no error in the OpenAPI documents', async () => {
  const names = ['', '/speech', '/pay', '/shop'];
  for (const name of names)
    await until(async () => (await fetch(`${host.url}${name}/openapi.json`)).ok || undefined, host.output);
  // Into files: it ends before a pipe has taken all of what it says.
  const lint = names.map((name, at) => `redocly lint --format=json ${host.url}${name}/openapi.json > said${at}.json`);
  await folder.sh(`npx -y -p @redocly/cli@2.77.0 -c '${lint.join(' && ')}'`, { REDOCLY_TELEMETRY: 'off' });
  for (const [at, name] of names.entries()) {
    const { totals, problems } = JSON.parse(await folder.sh(`cat said${at}.json`));
    const errors = problems.filter(({ severity }: { severity: string }) => severity === 'error');
    expect(errors, name).toEqual([]);
    // It did read it: the name of this machine is worth a warning.
    expect(totals.warnings, name).toBeGreaterThan(0);
  }
});

test('mppx validate finds a good 402 at every paid operation', async () => {
  const validated = async ([name, operations]: readonly [string, number], at: number): Promise<void> => {
    const url = host.url.replace('127.0.0.1', 'localhost') + name;
    const validate = `${MPPX_COMMAND} validate ${url} --output-json > found${at}.json`;
    const found = JSON.parse(await folder.sh(`${validate} || true; cat found${at}.json`));
    expect(found.endpoints).toHaveLength(operations);
    // Its payments are not looked at: it pays from a wallet of the public test network, which is not this one.
    const checks = [found.discovery, ...found.endpoints].flatMap(
      ({ checks = [], challenge = [], errorHandling = [] }) => [...checks, ...challenge, ...errorHandling],
    );
    expect(checks.length).toBeGreaterThan(operations * 10);
    // It warns of paid operations that take no body.
    expect(checks.filter(({ severity }) => severity !== 'pass' && severity !== 'warn')).toEqual([]);
  };
  // It waits most of the time: for its own network.
  await Promise.all(
    (
      [
        ['', 2],
        ['/speech', 5],
        ['/shop', 3],
      ] as const
    ).map(validated),
  );
});
