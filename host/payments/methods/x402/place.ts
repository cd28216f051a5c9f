/** A network of x402, and what settles there. */
import type { SolanaNetwork, X402Network } from '../../network/types.ts';
import type { BatchKeeper } from './batch/keeper.ts';
import type { EvmLanes } from './evm-lanes.ts';
import type { RemoteFacilitator } from './remote-facilitator.ts';

export interface X402Place {
  network: X402Network;
  lanes: EvmLanes;
  /** Settles in place of this process. */
  remote: RemoteFacilitator | undefined;
  /** Keeps channels; undefined where the contracts for it are not on the chain, or another settles. */
  keeper: BatchKeeper | undefined;
  /** Whether Permit2 and x402's proxy exist on the chain. */
  upto: boolean;
}

export interface SolanaPlace {
  network: SolanaNetwork;
  remote: RemoteFacilitator | undefined;
}
