/** Agents: the host's own MCP server, and priced tools of a tenant's, with the stock MCP client and stock wallets. */
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import type { CallToolResult } from '@modelcontextprotocol/sdk/types.js';
import { ExactEvmScheme } from '@x402/evm/exact/client';
import { x402Client } from '@x402/fetch';
import { build } from 'esbuild';
import { tempo } from 'mppx/client';
import { McpClient } from 'mppx/mcp/client';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { account, balances, chainClient, deploy, jsonPost, mppFetch } from './support/callers.ts';
import { curl } from './support/curl.ts';
import { startHost, type TestHost } from './support/host.ts';

/** A stock MCP server, as a tenant writes it. */
const SERVER = `
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { WebStandardStreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/webStandardStreamableHttp.js';
import { z } from 'zod';
let calls = 0;
function server() {
  const mcp = new McpServer({ name: 'shop', version: '1.0.0' });
  mcp.registerTool('free', { description: 'costs nothing' }, async () => ({ content: [{ type: 'text', text: 'free' }] }));
  mcp.registerTool('look', { description: 'looks', inputSchema: { at: z.string() } }, async ({ at }, { requestInfo }) => ({
    content: [{ type: 'text', text: at + ' ' + ++calls + ' ' + requestInfo.headers['x-payer'] }],
  }));
  mcp.registerTool('use', { description: 'costs what it uses' }, async () => ({ content: [{ type: 'text', text: 'used' }] }));
  mcp.registerTool('fail', { description: 'fails' }, async () => { throw new Error('not today'); });
  return mcp;
}
export default {
  async fetch(request) {
    const json = new URL(request.url).searchParams.has('json');
    const transport = new WebStandardStreamableHTTPServerTransport({ enableJsonResponse: json });
    await server().connect(transport);
    const answer = await transport.handleRequest(request);
    // Of the metered tool alone; others cost their price.
    answer.headers.set('x-charge', '0.02');
    return answer;
  },
};`;

let host: TestHost;
beforeAll(async () => {
  const { outputFiles } = await build({
    stdin: { contents: SERVER, resolveDir: import.meta.dirname, loader: 'ts' },
    bundle: true,
    write: false,
    format: 'esm',
    platform: 'node',
    external: ['node:*'],
  });
  host = await startHost();
  await deploy(mppFetch(host.network, 0), host.url, {
    slug: 'agents',
    code: outputFiles[0]?.text,
    compatibilityFlags: ['nodejs_compat'],
    paidRoutes: [
      { path: '/mcp', tool: 'look', price: '0.01', description: 'one look' },
      // The same place: paths are compared without their case and the slash at their end.
      { path: '/MCP/', tool: 'fail', price: '0.02' },
      { path: '/mcp', tool: 'use', price: '0.05', mode: 'metered' },
    ],
  });
});
afterAll(() => host?.stop());

async function connect(path: string, headers: Record<string, string> = {}): Promise<Client> {
  const client = new Client({ name: 'test', version: '1.0.0' });
  const transport = new StreamableHTTPClientTransport(new URL(path, host.url), { requestInit: { headers } });
  await client.connect(transport as never);
  return client;
}

/** A client that pays by MPP, as mppx wraps it. */
async function payingByMpp(path: string, wallet: number): Promise<Client> {
  const getClient = () => chainClient(host.network) as never;
  return McpClient.wrap(await connect(path), {
    methods: [tempo.charge({ account: account(host.network, wallet), getClient })],
  }) as unknown as Client;
}

/** A call with a payment for what the call before it asked for, as x402's transport has it. */
async function payByX402(client: Client, wallet: number, params: { name: string; arguments?: object }) {
  const asked = (await client.callTool(params as never)) as CallToolResult;
  expect(JSON.parse(textOf(asked))).toEqual(asked.structuredContent);
  const wallets = new x402Client();
  wallets.register('eip155:*', new ExactEvmScheme(account(host.network, wallet)));
  const { token, network } = host.network.x402;
  wallets.setSpendControls({ allowedAssets: [{ network, asset: token, maxAmountPerPayment: '5000000' }] } as never);
  const payment = await wallets.createPaymentPayload(asked.structuredContent as never);
  const meta = { 'x402/payment': payment };
  return {
    asked,
    again: (other: object = {}) =>
      client.callTool({ ...params, ...other, _meta: meta } as never) as Promise<CallToolResult>,
  };
}

const textOf = (result: unknown) => (result as { content: { text: string }[] }).content[0]?.text ?? '';

async function message(path: string, body: unknown) {
  const accept = 'application/json, text/event-stream';
  const answer = await fetch(`${host.url}${path}`, jsonPost(body, { accept }));
  return { status: answer.status, body: await answer.text(), headers: answer.headers };
}
const CALL = { jsonrpc: '2.0', method: 'tools/call' };

describe('priced tools of a tenant', () => {
  test('free tools and lists pass; the list tells the prices', async () => {
    const client = await connect('/agents/mcp');
    const { tools } = await client.listTools();
    expect(Object.fromEntries(tools.map(({ name, _meta }) => [name, _meta?.['dev.turnpike/price']]))).toEqual({
      free: undefined,
      look: { amount: '0.01', currency: 'USD', mode: 'fixed' },
      fail: { amount: '0.02', currency: 'USD', mode: 'fixed' },
      use: { amount: '0.05', currency: 'USD', mode: 'metered' },
    });
    expect(textOf(await client.callTool({ name: 'free', arguments: {} }))).toBe('free');
    await client.close();
  });

  test.each(['/agents/mcp', '/agents/mcp?json'])(
    'MPP pays for a call at %s, with a receipt in its _meta',
    async (path) => {
      const { address } = account(host.network, 1);
      const before = (await balances(host.network, address)).mpp;
      const client = await payingByMpp(path, 1);
      const result = await client.callTool({ name: 'look', arguments: { at: 'here' } });
      expect(textOf(result)).toMatch(new RegExp(`^here \\d+ did:pkh:eip155:\\d+:${address}$`, 'i'));
      expect(result._meta?.['org.paymentauth/receipt']).toMatchObject({
        status: 'success',
        challengeId: expect.any(String),
      });
      expect(before - (await balances(host.network, address)).mpp).toBe(10_000n);
      await client.close();
    },
  );

  test('x402 pays for a call; shown again it brings the same answer, and nothing else', async () => {
    const { address } = account(host.network, 2);
    const client = await connect('/agents/mcp');
    const { asked, again } = await payByX402(client, 2, { name: 'look', arguments: { at: 'there' } });
    expect(asked).toMatchObject({
      isError: true,
      structuredContent: {
        x402Version: 2,
        extensions: { bazaar: { info: { input: { type: 'mcp', toolName: 'look', transport: 'streamable-http' } } } },
      },
      _meta: { 'org.paymentauth/payment-required': { httpStatus: 402, challenges: [{ method: 'tempo' }] } },
    });
    const before = (await balances(host.network, address)).x402;
    const results = await Promise.all([again(), again(), again()]);
    for (const paid of results) {
      if (paid.isError) expect(textOf(paid)).toMatch(/being worked on|under way|in progress/i);
      else expect(paid._meta?.['x402/payment-response']).toMatchObject({ success: true });
    }
    const first = textOf(results.find(({ isError }) => !isError));
    expect(first).toContain('there');
    expect(textOf(await again())).toBe(first);
    expect(before - (await balances(host.network, address)).x402).toBe(10_000n);
    for (const other of [{ arguments: { at: 'elsewhere' } }, { name: 'fail', arguments: {} }])
      expect(await again(other)).toMatchObject({ isError: true });
    expect(before - (await balances(host.network, address)).x402).toBe(10_000n);
    await client.close();
  });

  test('a metered tool is paid by a session, as it is used', async () => {
    const payer = account(host.network, 5);
    const client = await connect('/agents/mcp');
    const methods = [
      tempo.session({ account: payer, maxDeposit: '1', getClient: () => chainClient(host.network) as never }),
    ];
    McpClient.wrap(client, { methods });
    const receipts = [];
    for (let turn = 0; turn < 3; turn++) {
      const result = await client.callTool({ name: 'use', arguments: {} });
      expect(textOf(result)).toBe('used');
      receipts.push(result._meta?.['org.paymentauth/receipt'] as { spent: string });
    }
    expect(receipts.map(({ spent }) => spent)).toEqual(['20000', '40000', '60000']);
    await client.close();
  });

  test('a tool that fails costs nothing, and says why', async () => {
    const { address } = account(host.network, 1);
    const before = await balances(host.network, address);
    const client = await payingByMpp('/agents/mcp', 1);
    const result = await client.callTool({ name: 'fail', arguments: {} });
    expect(result).toMatchObject({ isError: true, content: [{ text: expect.stringContaining('not today') }] });
    expect(await balances(host.network, address)).toEqual(before);
    await client.close();
  });

  test('messages that another reader could take for a priced call are not free', async () => {
    const refused = async (body: unknown) => {
      const answer = await message('/agents/mcp', body);
      expect(answer.body).not.toMatch(/here \d+ /);
      return answer.body;
    };
    const params = { name: 'look', arguments: { at: 'here' } };
    expect(await refused([{ ...CALL, id: 1, params }])).toContain('message of its own');
    expect(
      await refused([
        { ...CALL, id: 1, params: { name: 'free' } },
        { ...CALL, id: 2, params },
      ]),
    ).toContain('its own');
    expect(await refused({ ...CALL, params })).toContain('needs an id');
    for (const name of [' look', 'LOOK', 'look\u200b', 'lo\u006fk\n', 'ｌｏｏｋ'])
      expect(await refused({ ...CALL, id: 1, params: { ...params, name } })).toContain('plain spelling');
    for (const name of [['look'], [['look']], undefined, 1])
      expect(await refused({ ...CALL, id: 1, params: { ...params, name } })).toContain('takes the name of a tool');
    expect(await refused({ ...CALL, id: 1, method: 'Tools/Call', params })).toContain('plain spelling');
    const lenient = [
      `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"free","Name":"look"}}`,
      `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"free"},"param\u017f":{"name":"look"}}`,
      `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"free","__proto__":{"name":"look"}}}`,
      `{"jsonrpc":"2.0","id":1,"result":{},"__proto__":{"method":"tools/call"}}`,
    ];
    for (const body of lenient) expect(await refused(JSON.parse(body))).toContain('takes messages of MCP');
    // A handler's reader may take the first of two.
    const twice = (...names: string[]) =>
      `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{${names.map((name) => `"name":"${name}"`)},"arguments":{"at":"here"}}}`;
    const raw = async (body: string) => {
      const headers = { 'content-type': 'application/json', accept: 'application/json, text/event-stream' };
      return await (await fetch(`${host.url}/agents/mcp`, { method: 'POST', headers, body })).text();
    };
    expect(await raw(twice('look', 'free'))).toContain('"text":"free"');
    expect(await raw(twice('free', 'look'))).toContain('x402Version');
    expect(await raw(twice('look').replace('"here"', `${'['.repeat(200_000)}${']'.repeat(200_000)}`))).toContain(
      'bad_request',
    );
    // A handler may not look at the method.
    const call = JSON.stringify({ ...CALL, id: 1, params });
    for (const method of ['GET', 'PUT', 'PATCH', 'DELETE']) {
      for (const path of ['mcp', 'MCP/', '%6dcp']) {
        const status = await curl(`${host.url}/agents/${path}`, { method, body: call });
        expect([method, path, status.status]).toEqual([method, path, 405]);
      }
    }
    expect((await fetch(`${host.url}/agents/mcp`, { method: 'DELETE' })).headers.get('allow')).toBeNull();
    expect((await message('/agents/mcp', 'no message')).status).toBe(400);
    expect(await refused({ ...CALL, id: 1, params: { ...params, _meta: { 'x402/payment': 1 } } })).toContain('isError');
    expect(
      await refused({
        ...CALL,
        id: 1,
        params: { ...params, _meta: { 'org.paymentauth/credential': { challenge: 1 } } },
      }),
    ).toContain('not readable');
    expect((await message('/agents/mcp', 'x'.repeat(1_100_000))).status).toBe(413);
    expect((await message('/mcp', 'x'.repeat(1_100_000))).status).toBe(413);
    // Indexers ask with nothing.
    const probe = await fetch(`${host.url}/agents/mcp`, { method: 'POST' });
    expect([probe.status, probe.headers.has('payment-required')]).toEqual([402, true]);
  });
});

describe('the host as an MCP server', () => {
  test('a wallet deploys, sees, buys, renews and deletes by tools', async () => {
    const client = await payingByMpp('/mcp', 3);
    expect(client.getServerVersion()).toMatchObject({ name: 'turnpike' });
    const names = (await client.listTools()).tools.map(({ name }) => name);
    expect(names).toEqual(
      expect.arrayContaining(['deploy', 'update', 'renew', 'show', 'logs', 'usage', 'delete', 'buy']),
    );
    const call = async (name: string, args: object) => {
      const result = (await client.callTool({ name, arguments: args } as never)) as CallToolResult;
      if (result.isError) throw new Error(textOf(result));
      return result;
    };
    const deployed = await call('deploy', {
      slug: 'by-agent',
      code: 'export default { fetch: (r) => { console.log("asked"); return Response.json({ sold: new URL(r.url).search }); } }',
      paidRoutes: [{ path: '/v1/*', price: '0.01' }],
    });
    expect(deployed).toMatchObject({
      structuredContent: { slug: 'by-agent', state: 'active' },
      _meta: { 'org.paymentauth/receipt': { status: 'success' } },
    });
    expect(textOf(await call('buy', { slug: 'by-agent', path: '/v1/x?a=b' }))).toBe('{"sold":"?a=b"}');
    expect((await call('logs', { slug: 'by-agent', limit: '5' })).structuredContent).toMatchObject({
      entries: expect.arrayContaining([expect.objectContaining({ text: 'asked' })]),
    });
    const updated = await call('update', {
      slug: 'by-agent',
      code: 'export default { fetch: () => new Response("2") }',
    });
    expect(updated.structuredContent).toMatchObject({ version: 2 });
    expect(await (await fetch(`${host.url}/by-agent/`)).text()).toBe('2');
    const { expiresAt } = (await call('show', { slug: 'by-agent' })).structuredContent as { expiresAt: string };
    const renewed = (await call('renew', { slug: 'by-agent' })).structuredContent as { expiresAt: string };
    expect(Date.parse(renewed.expiresAt) - Date.parse(expiresAt)).toBe(30 * 86_400_000);
    await expect(call('renew', { slug: 'agents' })).rejects.toThrow(/belongs to/);
    await expect(call('logs', { slug: 'agents' })).rejects.toThrow(/owns this/);
    expect((await call('delete', { slug: 'by-agent' })).structuredContent).toMatchObject({ state: 'decommissioned' });
    await client.close();
  });

  test('x402 pays for a deploy', async () => {
    const client = await connect('/mcp');
    const code = 'export default { fetch: () => new Response("x402") }';
    const { again } = await payByX402(client, 4, { name: 'deploy', arguments: { slug: 'by-x402', code } });
    expect(await again()).toMatchObject({
      structuredContent: { slug: 'by-x402' },
      _meta: { 'x402/payment-response': { success: true } },
    });
    expect(await again({ arguments: { slug: 'another', code } })).toMatchObject({ isError: true });
    await client.close();
  });

  test('what is no call of a tool is answered as MCP has it', async () => {
    const ask = async (body: unknown) => JSON.parse((await message('/mcp', body)).body);
    expect(await ask({ jsonrpc: '2.0', id: 'a', method: 'resources/list' })).toMatchObject({
      id: 'a',
      error: { code: -32601 },
    });
    expect(await ask({ ...CALL, id: 1, params: { name: 'nothing' } })).toMatchObject({ error: { code: -32602 } });
    expect(await ask([{ jsonrpc: '2.0', id: 1, method: 'ping' }])).toMatchObject({ error: { code: -32600 } });
    expect((await message('/mcp', { jsonrpc: '2.0', method: 'notifications/initialized' })).status).toBe(202);
    expect((await message('/mcp', 'nothing')).status).toBe(400);
    expect((await fetch(`${host.url}/mcp`)).status).toBe(405);
    const path = (path: unknown) => ({ ...CALL, id: 1, params: { name: 'buy', arguments: { slug: 'agents', path } } });
    for (const slug of ['.', '..'])
      expect((await ask({ ...CALL, id: 1, params: { name: 'logs', arguments: { slug } } })).result).toMatchObject({
        structuredContent: { code: 'bad_request' },
      });
    for (const bad of ['//other.test/', '/../_admin/list', 'x', '/a#b', '/a\r\nx: y', 7])
      expect((await ask(path(bad))).result).toMatchObject({ isError: true });
  });
});
