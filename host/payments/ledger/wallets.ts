/** What the host's own wallets hold: gas to settle with, and money on its way. Asks the chains. */
import { type Hex, parseAbi } from 'viem';
import { getBalance, readContract } from 'viem/actions';
import { formatUsd, type Money, micro } from '../../shared/money.ts';
import { LEAST_SETTLEMENTS, settlementsLeft } from '../methods/x402/solana/cost.ts';
import { mppNetworks, type Network, type SolanaNetwork, x402Networks } from '../network/types.ts';
import type { HostWallet } from '../types.ts';

const BALANCE = parseAbi(['function balanceOf(address) view returns (uint256)']);
const TIMEOUT_MS = 4_000;
const SILENT = 'the network does not answer';
/** A settlement's units, with a margin. */
const SETTLEMENT_UNITS = 150_000n;

/** @param settlesElsewhere whether a facilitator elsewhere settles x402: gas is for what the host has to send on, then */
export async function hostWallets(network: Network, settlesElsewhere: boolean): Promise<HostWallet[]> {
  const { facilitator, settler, feePayer } = network.hostAccounts;
  const rows = [
    ...mppNetworks(network).flatMap((mpp) => {
      const tempo = { client: mpp.getClient(), token: mpp.currency, chain: mpp.chain.name, gas: false };
      return [
        { name: 'receives deploys and renewals paid by MPP', address: mpp.recipient, ...tempo },
        { name: 'collects from payment sessions, and pays owners', address: settler.address, ...tempo },
        { name: 'pays fees for others', address: feePayer.address, ...tempo },
      ];
    }),
    ...x402Networks(network).flatMap((x402) => {
      const evm = { client: x402.getClient(), token: x402.token, chain: x402.chain.name };
      return [
        { name: 'receives deploys and renewals paid by x402', address: x402.recipient, ...evm, gas: false },
        {
          name: settlesElsewhere ? 'sends shares and refunds of x402' : 'settles x402, and pays its gas',
          address: facilitator.address,
          ...evm,
          gas: true,
        },
      ];
    }),
  ];
  const onSolana = (network.solana ?? []).flatMap((each) => solanaWallets(each, settlesElsewhere));
  const onEvm = rows.map(({ name, address, client, token, chain, gas }) =>
    reading({ name, address, chain }, async () => {
      const balance = await readContract(client as never, {
        address: token as Hex,
        abi: BALANCE,
        functionName: 'balanceOf',
        args: [address],
      });
      const usd = formatUsd(balance as Money);
      if (!gas) return { usd };
      const { isLow, ...left } = await gasOf(client, address);
      return { usd, ...left, isLow: isLow && (!settlesElsewhere || (balance as bigint) > 0n) };
    }),
  );
  return Promise.all([...onEvm, ...onSolana]);
}

/** Its fees are less than the gas of other networks, and have a limit of their own. */
function solanaWallets(network: SolanaNetwork, settlesElsewhere: boolean): Promise<HostWallet>[] {
  const { name: chain, recipient, feePayer, token, ask } = network;
  const receives = { name: 'receives for routes of the operator paid on Solana', address: recipient, chain };
  const pays = { name: 'pays the fees of payments on Solana', address: feePayer, chain };
  return [
    reading(receives, async () => {
      const { value } = await ask<TokenAccounts>('getTokenAccountsByOwner', [recipient, { mint: token }, JSON_PARSED]);
      const amounts = value.map(({ account }) => BigInt(account.data.parsed.info.tokenAmount.amount));
      return { usd: formatUsd(micro(amounts.reduce((sum, each) => sum + each, 0n))) };
    }),
    reading(pays, async () => {
      const [{ value: lamports }, rent] = await Promise.all([
        ask<{ value: number }>('getBalance', [feePayer]),
        ask<number>('getMinimumBalanceForRentExemption', [0]),
      ]);
      const left = settlementsLeft(lamports, rent);
      const coin = (lamports / 1e9).toFixed(6);
      return { usd: '0.00', coin, settlementsLeft: left, isLow: !settlesElsewhere && left < LEAST_SETTLEMENTS };
    }),
  ];
}

const JSON_PARSED = { encoding: 'jsonParsed' };

interface TokenAccounts {
  value: { account: { data: { parsed: { info: { tokenAmount: { amount: string } } } } } }[];
}

function reading(
  about: Pick<HostWallet, 'name' | 'address' | 'chain'>,
  read: () => Promise<Omit<HostWallet, 'name' | 'address' | 'chain'>>,
): Promise<HostWallet> {
  return within(read()).then(
    (found) => ({ ...about, ...found }),
    () => ({ ...about, usd: null, problem: SILENT }),
  );
}

async function gasOf(
  client: unknown,
  address: Hex,
): Promise<{ coin: string; settlementsLeft: number | null; isLow: boolean }> {
  const reader = client as Parameters<typeof getBalance>[0] & { getGasPrice(): Promise<bigint> };
  const [coin, price] = await Promise.all([getBalance(reader, { address }), reader.getGasPrice()]);
  const cost = price * SETTLEMENT_UNITS;
  const left = cost === 0n ? undefined : coin / cost;
  return {
    coin: (Number(coin) / 1e18).toFixed(6),
    settlementsLeft: left === undefined ? null : Number(left),
    isLow: left !== undefined && left < BigInt(LEAST_SETTLEMENTS),
  };
}

function within<T>(work: Promise<T>): Promise<T> {
  const late = Promise.withResolvers<never>();
  const timer = setTimeout(() => late.reject(new Error('no answer in time')), TIMEOUT_MS);
  return Promise.race([work, late.promise]).finally(() => clearTimeout(timer));
}
