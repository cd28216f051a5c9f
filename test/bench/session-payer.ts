/**
 * A payer by session that takes little of the machine: a stock client opens the channel, with a deposit for the whole
 * run; from then on vouchers are signed by libsecp256k1 and sent by Node's own client.
 */
import http from 'node:http';
import { buffer } from 'node:stream/consumers';
import { tempo } from 'mppx/client';
import { signRecoverable } from 'tiny-secp256k1';
import type { Hex } from 'viem';
import { voucherDigest } from '../../host/payments/methods/tempo/sessions/voucher.ts';
import { account, chainClient, type Fetch, type Headers as Fields } from '../e2e/support/callers.ts';
import type { LocalNetworkFile } from '../e2e/support/host.ts';

/** A voucher as the stock client sent it, in its credential. */
interface Sent {
  challenge: { request: string };
  payload: { channelId: Hex; cumulativeAmount: string };
  source: string;
}

/** @param deposit USD @param sender what the stock client sends its requests with */
export async function sessionPayer(
  network: LocalNetworkFile,
  wallet: number,
  url: string,
  deposit: string,
  sender: typeof fetch = fetch,
): Promise<Fetch> {
  const { challenge, payload, source } = await openChannel(network, wallet, url, deposit, sender);
  const { methodDetails } = requestOf(challenge);
  const { escrowContract, chainId } = methodDetails;
  const key = Buffer.from((network.wallets[wallet]?.privateKey ?? '').slice(2), 'hex');
  const agent = new http.Agent({ keepAlive: true, maxSockets: 1 });
  let cumulativeAmount = BigInt(payload.cumulativeAmount);
  return async (input) => {
    const unpaid = await get(agent, input);
    if (unpaid.status !== 402) return unpaid;
    const offered = sessionChallenge(unpaid);
    cumulativeAmount += BigInt(requestOf(offered).amount);
    const digest = voucherDigest(escrowContract, chainId, { channelId: payload.channelId, cumulativeAmount });
    const { signature, recoveryId } = signRecoverable(digest, key);
    const voucher = {
      ...payload,
      cumulativeAmount: String(cumulativeAmount),
      signature: `0x${Buffer.from(signature).toString('hex')}${(27 + recoveryId).toString(16)}`,
    };
    const credential = JSON.stringify({ challenge: offered, payload: voucher, source });
    return get(agent, input, { authorization: `Payment ${Buffer.from(credential).toString('base64url')}` });
  };
}

/** @returns the first voucher after the deposit */
async function openChannel(
  network: LocalNetworkFile,
  wallet: number,
  url: string,
  deposit: string,
  sender: typeof fetch,
): Promise<Sent> {
  let last = '';
  const watched = (input: string | URL | Request, init?: RequestInit) => {
    last = new Request(input, init).headers.get('authorization') ?? last;
    return sender(input, init);
  };
  const client = tempo.session.manager({
    account: account(network, wallet),
    getClient: () => chainClient(network) as never,
    // Beside the first deposit, which is the host's suggestion.
    maxDeposit: String(2 * Number(deposit)),
    fetch: watched,
  } as never);
  const call = async () => {
    const answer = await client.fetch(url);
    if (!answer.ok) throw new Error(await answer.text());
    await answer.arrayBuffer();
  };
  await call();
  await client.topUp(deposit);
  await call();
  return JSON.parse(Buffer.from(last.replace(/^payment\s+/i, ''), 'base64url').toString()) as Sent;
}

interface SessionRequest {
  amount: string;
  methodDetails: { escrowContract: string; chainId: number };
}

function requestOf({ request }: { request: string }): SessionRequest {
  return JSON.parse(Buffer.from(request, 'base64url').toString()) as SessionRequest;
}

function sessionChallenge(unpaid: Response): { request: string } {
  const offers = (unpaid.headers.get('www-authenticate') ?? '').split(/,\s*(?=Payment )/);
  const session = offers.find((offer) => offer.includes('intent="session"')) ?? '';
  return Object.fromEntries([...session.matchAll(/(\w+)="([^"]*)"/g)].map(([, name, value]) => [name, value]));
}

function get(agent: http.Agent, url: string, headers: Fields = {}): Promise<Response> {
  return new Promise((resolve, reject) => {
    const request = http.get(url, { agent, headers }, (answer) => {
      const { statusCode, headers: fields } = answer;
      const pairs = Object.entries(fields).map(([name, value]): [string, string] => [name, String(value)]);
      buffer(answer).then((body) => resolve(new Response(body, { status: statusCode ?? 0, headers: pairs })), reject);
    });
    request.on('error', reject);
  });
}
