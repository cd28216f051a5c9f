/** kill -9 around the moment in which a payment on Solana is sent: it moves once, and the payer gets what it paid for. */
import { afterAll, beforeAll, expect, test } from 'vitest';
import { deploy, mppFetch } from './support/callers.ts';
import { startHost, type TestHost } from './support/host.ts';
import { fillFeePayer, type SolanaNode, solanaClient, solanaFlags, startSolanaNode } from './support/solana-node.ts';
import { until } from './support/until.ts';

const PRICE = 50_000n;

let node: SolanaNode;
let host: TestHost;

beforeAll(async () => {
  node = await startSolanaNode();
  const operator = await node.wallet(0n);
  host = await startHost({ flags: solanaFlags(node, operator.address) });
});
afterAll(async () => {
  await host?.stop();
  await node?.close();
});

test('a host that is killed before or after the node has a transaction, settles it once', async () => {
  const seller = await node.wallet(0n);
  await deploy(mppFetch(host.network, 0), host.url, {
    slug: 'shop',
    code: `export default { fetch: () => new Response('bought') }`,
    paidRoutes: [{ method: 'GET', path: '/a', price: '0.05', solana: seller.address }],
  });
  const payer = await node.wallet(1_000_000n);
  const client = solanaClient(node, payer);
  await fillFeePayer(node, host);

  for (const [index, isTaken] of [true, false].entries()) {
    await node.silentAt(isTaken, () => client.fetch(`${host.url}/shop/a`));
    expect(await node.held(seller.address)).toBe(BigInt(index) * PRICE + (isTaken ? PRICE : 0n));
    await host.kill();
    node.fault = () => undefined;
    host = await host.restart();
    const again = await until(async () => {
      const answer = await fetch(`${host.url}/shop/a`, { headers: { 'payment-signature': client.sent.signature } });
      return answer.status === 503 || answer.status === 202 ? undefined : answer;
    });
    expect([again.status, await again.text()]).toEqual([200, 'bought']);
    expect(await node.held(seller.address)).toBe(BigInt(index + 1) * PRICE);
  }
  const { json: books } = await host.operator('POST', '/payments/reconcile');
  expect(books).toMatchObject({ ok: true, differences: [] });
});
