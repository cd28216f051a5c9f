/** A host on two networks at once: its own local one, and a second chain as an operator would name it in `payments.also`. */
import { mkdir, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { domainSeparator, type Hex } from 'viem';
import defaults from '../../../config/turnpike.default.json' with { type: 'json' };
import { findConfinement } from '../../../host/local-network/anvil.ts';
import {
  BASE_SEPOLIA_ID,
  PATH_USD_ADDRESS,
  PERMIT2_ADDRESS,
  USDC_ADDRESS,
} from '../../../host/local-network/contracts/index.ts';
import { EmbeddedChain } from '../../../host/local-network/embedded-chain.ts';
import { startGateway } from '../../../host/local-network/gateway.ts';
import { setUpChain } from '../../../host/local-network/genesis.ts';
import { type MppNetwork, type Network, openNetwork, type X402Network } from '../../../host/payments/network/index.ts';
import { loadNetworkKeys } from '../../../host/payments/network/keys.ts';
import { AdjustableClock } from '../../../host/shared/clock.ts';
import { configSchema } from '../../../host/shared/config.ts';
import { quiet } from './payments-rig.ts';

export const SECOND_CHAIN = 84533;
export const SECOND_RECIPIENT = '0x00000000000000000000000000000000000000bb';

/** `PUSH3` of the chain that transfers of the stand-in for USDC are signed for. */
const signedFor = (chainId: number) => `62${chainId.toString(16).padStart(6, '0')}`;
/** What Permit2's code holds of the chain that permits are signed for. */
const permitsFor = (chainId: number) =>
  domainSeparator({ domain: { name: 'Permit2', chainId, verifyingContract: PERMIT2_ADDRESS } }).slice(2);

export interface TwoNetworks {
  network: Network;
  second: { mpp: MppNetwork; x402: X402Network };
  stop(): Promise<void>;
}

/** Both chains know the same wallets, and have given each the same money. */
export async function startTwoNetworks(): Promise<TwoNetworks> {
  const folder = await mkdtemp(path.join(tmpdir(), 'tp-two-'));
  const keys = await loadNetworkKeys(folder);
  const { facilitator, settler, feePayer } = keys.accounts;
  const chainFolder = path.join(folder, 'second');
  await mkdir(chainFolder);
  const chain = await EmbeddedChain.start({
    chainId: SECOND_CHAIN,
    folder: chainFolder,
    socketPath: path.join(chainFolder, 'anvil.sock'),
    confinement: findConfinement(),
    async setUp(rpc) {
      await setUpChain(rpc, { wallets: keys.wallets, senders: [facilitator, settler, feePayer] });
      // Embedded chains take what is signed for Base Sepolia; this one has a chain id of its own.
      for (const [contract, of] of [
        [USDC_ADDRESS, signedFor],
        [PERMIT2_ADDRESS, permitsFor],
      ] as const) {
        const code = await rpc.request<Hex>('eth_getCode', [contract, 'latest']);
        const own = code.replaceAll(of(BASE_SEPOLIA_ID), of(SECOND_CHAIN));
        if (own === code) throw new Error(`${contract} is not as it is known`);
        await rpc.request('anvil_setCode', [contract, own]);
      }
    },
    log: quiet,
  });
  const gateway = await startGateway(chain, 0);
  const also = { rpcUrl: gateway.url, recipient: SECOND_RECIPIENT, testMoney: true };
  const config = configSchema.parse({
    ...defaults,
    payments: {
      ...defaults.payments,
      also: [
        { ...also, network: `eip155:${SECOND_CHAIN}`, token: USDC_ADDRESS },
        { ...also, network: `tempo:${SECOND_CHAIN}`, token: PATH_USD_ADDRESS },
      ],
    },
  });
  const network = await openNetwork({ config, dataFolder: folder, clock: new AdjustableClock(), log: quiet });
  const [mpp] = network.also?.mpp ?? [];
  const [x402] = network.also?.x402 ?? [];
  if (!mpp || !x402) throw new Error('the second network is missing');
  return {
    network,
    second: { mpp, x402 },
    async stop() {
      await network.close();
      await gateway.close();
      await chain.close();
      await rm(folder, { recursive: true, force: true });
    },
  };
}
