/**
 * The networks that the configuration names: chain, token and recipient of each, checked together. Nothing of them is
 * asked here.
 */
import { type Chain, defineChain, getAddress, type Address as ViemAddress } from 'viem';
import { type Config, isTestNetwork } from '../../shared/config.ts';
import { Problem } from '../../shared/problem.ts';
import { localTempoChain, TEMPO_NETWORKS, withRpc, X402_NETWORKS } from './chains.ts';

export interface NamedNetwork {
  /** As the configuration has it. */
  name: string;
  chain: Chain;
  token: ViemAddress;
  recipient: ViemAddress;
  /** Setting with the RPC URL. */
  rpcSetting: string;
}

export interface NamedX402Network extends NamedNetwork {
  /** EIP-712 name and version of the token, as long as it does not answer. */
  domain: { name: string; version: string };
}

export interface NamedNetworks {
  mpp: NamedNetwork[];
  x402: NamedX402Network[];
}

type Payments = Config['payments'];
interface Entry {
  network: string;
  rpcUrl: string;
  token: string;
  recipient: string;
}

/** @throws Problem `invalid_config` */
export function namedNetworks(payments: Payments): NamedNetworks {
  const { network, rpcUrl, recipient, currency: token, x402, also } = payments;
  const isPublic = network !== 'local' && network !== 'none';
  const first = isPublic ? [tempoNetwork({ network, rpcUrl, recipient, token }, 'payments')] : [];
  const others = also.map((entry, index) => ({
    entry: { ...entry, recipient: entry.recipient || (isOfTempo(entry.network) ? '' : x402.recipient) || recipient },
    place: `payments.also[${index}]`,
  }));
  const named = {
    mpp: [
      ...first,
      ...others.flatMap(({ entry, place }) => (isOfTempo(entry.network) ? tempoNetwork(entry, place) : [])),
    ],
    x402: [
      ...(x402.network === ''
        ? []
        : [x402Network({ ...x402, token: '', recipient: x402.recipient || recipient }, 'payments.x402')]),
      ...others.flatMap(({ entry, place }) => (isOfTempo(entry.network) ? [] : x402Network(entry, place))),
    ],
  };
  assertSame(payments);
  return named;
}

function isOfTempo(network: string): boolean {
  return network.startsWith('tempo');
}

function tempoNetwork({ network, rpcUrl, recipient, token }: Entry, place: string): NamedNetwork {
  const known = Object.entries(TEMPO_NETWORKS).find(([name]) => name === network)?.[1];
  const setting = place === 'payments' ? 'currency' : 'token';
  const chain = known
    ? withRpc(known.chain, rpcUrl)
    : { ...localTempoChain(idOf(network), required(rpcUrl, place, 'rpcUrl', network)), name: network };
  return {
    name: network,
    chain,
    token: getAddress(known ? token || known.currency : required(token, place, setting, network)),
    recipient: getAddress(required(recipient, place, 'recipient', network)),
    rpcSetting: `${place}.rpcUrl`,
  };
}

function x402Network({ network, rpcUrl, recipient, token }: Entry, place: string): NamedX402Network {
  const known = Object.entries(X402_NETWORKS).find(([name]) => name === network)?.[1];
  const chain = known
    ? withRpc(known.chain, rpcUrl)
    : defineChain({
        id: idOf(network),
        name: network,
        nativeCurrency: { name: 'Ether', symbol: 'ETH', decimals: 18 },
        rpcUrls: { default: { http: [required(rpcUrl, place, 'rpcUrl', network)] } },
      });
  return {
    name: network,
    chain,
    token: getAddress(known ? token || known.token : required(token, place, 'token', network)),
    recipient: getAddress(required(recipient, place, 'recipient', network)),
    rpcSetting: `${place}.rpcUrl`,
    domain: known ? { name: known.name, version: known.version } : { name: 'USDC', version: '2' },
  };
}

function idOf(network: string): number {
  return Number(network.split(':')[1]);
}

function required(value: string, place: string, name: string, network: string): string {
  if (value !== '') return value;
  const what = name === 'recipient' ? 'the wallet that receives payments on' : 'that of';
  throw new Problem('invalid_config', `Set ${place}.${name} to ${what} ${network}.`);
}

/** Who pays in worthless money must not get what others pay for, unless the operator means it. */
function assertSame({ network, x402, solana, also, allowTestMoneyInPublic }: Payments): void {
  const names = [network, x402.network, solana.network, ...also.map((entry) => entry.network)].filter(
    (name) => name !== '' && name !== 'none',
  );
  const test = names.filter((name) => isTestNetwork(name, also));
  if (allowTestMoneyInPublic || test.length === 0 || test.length === names.length) return;
  const real = names.filter((name) => !test.includes(name));
  throw new Problem(
    'invalid_config',
    `payments: ${test.join(', ')} is test money and ${real.join(', ')} is real; whoever has the one would get what others pay for with the other. Take one kind, say payments.also[].testMoney where a network of your own is one, or set payments.allowTestMoneyInPublic if you mean it.`,
  );
}

/**
 * What is signed for one network must be good on no other: the chain of a signature, and the asset in the books, tell
 * them apart.
 * @throws Problem `invalid_config`
 */
export function assertDistinct(protocol: string, chainIds: readonly number[]): void {
  const twice = chainIds.find((id, index) => chainIds.indexOf(id) !== index);
  if (twice === undefined) return;
  throw new Problem(
    'invalid_config',
    `payments.also: chain ${twice} is there twice for ${protocol}; each network can be there once.`,
  );
}
