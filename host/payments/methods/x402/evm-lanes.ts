/**
 * One EVM account, one transaction at a time from nonce to broadcast: settlements and payouts of the same account must
 * not take the same nonce. Confirmations are not waited for, so several may be on their way.
 */
import { type Account, type EncodeFunctionDataParameters, encodeFunctionData, type Hex, keccak256 } from 'viem';
import { getTransactionCount, prepareTransactionRequest, sendRawTransaction } from 'viem/actions';
import { type Leases, OwnLeases, type Passed } from '../../../registry/leases.ts';
import type { X402Network } from '../../network/types.ts';
import { lower } from '../../terms.ts';
import { isKnown } from '../chain/node-errors.ts';

export interface EvmCall {
  to: Hex;
  data: Hex;
  gas?: bigint;
}

/** Nodes behind a balancer may not know yet what another of them took, ms. */
const REMEMBER_MS = 60_000;

export class EvmLanes {
  readonly #network: X402Network;
  readonly #leases: Leases;

  /** @param leases by which several nodes take turns */
  constructor(network: X402Network, leases: Leases = new OwnLeases()) {
    this.#network = network;
    this.#leases = leases;
  }

  /**
   * Signs with the next nonce and hands the transaction to `broadcast` before the next one gets its turn.
   * @param broadcast sends it; if it throws, the nonce counts as unused
   * @param isTaken whether the node has it now; if not, the nonce counts as unused: the node keeps what comes after a
   *   nonce that is missing until somebody uses that
   */
  async run<T>(
    account: Account,
    call: EvmCall,
    broadcast: (signed: { raw: Hex; hash: Hex; nonce: number }) => Promise<T>,
    isTaken: (result: T) => boolean = () => true,
  ): Promise<T> {
    return this.#leases.exclusively(`wallet:${this.#network.chain.id}:${lower(account.address)}`, async (passed) => {
      const client = this.#network.getClient(account);
      const last = lastOf(passed);
      passed.note = last && noteOf(last);
      const nonce = await this.#nonce(account.address, last);
      const prepared = await prepareTransactionRequest(client, {
        account,
        chain: this.#network.chain,
        nonce,
        to: call.to,
        data: call.data,
        ...(call.gas === undefined ? {} : { gas: call.gas }),
      });
      // By the account itself: viem's action asks the node for the chain's id first, which the transaction names.
      const raw = await signed(account, prepared);
      const result = await broadcast({ raw, hash: keccak256(raw), nonce });
      if (isTaken(result)) passed.note = noteOf({ nonce, ageMs: 0 });
      return result;
    });
  }

  send(account: Account, call: EvmCall): Promise<Hex> {
    const client = this.#network.getClient();
    return this.run(account, call, async ({ raw, hash }) => {
      try {
        return await sendRawTransaction(client, { serializedTransaction: raw });
      } catch (error) {
        if (isKnown(error)) return hash;
        throw error;
      }
    });
  }

  /** What x402's signer needs to write: contract calls and plain ones. */
  signer(account: Account) {
    return {
      writeContract: (input: EncodeFunctionDataParameters & { address: Hex; gas?: bigint; dataSuffix?: Hex }) => {
        const data = encodeFunctionData(input);
        return this.send(account, {
          to: input.address,
          data: input.dataSuffix === undefined ? data : `${data}${input.dataSuffix.slice(2)}`,
          ...(input.gas === undefined ? {} : { gas: input.gas }),
        });
      },
      sendTransaction: (call: EvmCall) => this.send(account, call),
    };
  }

  async #nonce(address: Hex, last: Last | undefined): Promise<number> {
    const pending = await getTransactionCount(this.#network.getClient(), { address, blockTag: 'pending' });
    return last && last.nonce >= pending ? last.nonce + 1 : pending;
  }
}

async function signed(account: Account, prepared: object): Promise<Hex> {
  if (!account.signTransaction) throw new Error('the account of the host has no key');
  return account.signTransaction(prepared as never) as Promise<Hex>;
}

/** The nonce that was taken last, as long as a node may not know of it. */
interface Last {
  nonce: number;
  ageMs: number;
}

function lastOf({ note, ageMs }: Passed): Last | undefined {
  if (note === undefined) return undefined;
  const [nonce = 0, before = 0] = note.split(' ').map(Number);
  const last = { nonce, ageMs: before + ageMs };
  return last.ageMs < REMEMBER_MS ? last : undefined;
}

function noteOf({ nonce, ageMs }: Last): string {
  return `${nonce} ${Math.round(ageMs)}`;
}
