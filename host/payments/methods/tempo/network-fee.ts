/**
 * The network's fee of a signed transaction. Simulations neither look at what is offered for gas nor take it, and the
 * network takes no transaction whose fee is too low, or not there: a handler would have worked for nothing.
 */
import { type Address, type Client, type Hex, isAddressEqual } from 'viem';
import { getBlock } from 'viem/actions';
import { Actions, Addresses } from 'viem/tempo';
import { Problem } from '../../../shared/problem.ts';

/** Tempo's base fee is fixed: it changes with the network's versions. */
const BASE_FEE_KEPT_MS = 60_000;
/** Prices of gas are in 10^-18 USD, amounts in 10^-6. */
const MICRO = 10n ** 12n;

export interface FeeTransaction {
  from?: Hex;
  gas?: bigint;
  maxFeePerGas?: bigint;
  feeToken?: Address;
  calls?: readonly { to?: Address | null | undefined }[];
}

export interface NetworkFee {
  token: Address;
  microUsd: bigint;
}

const baseFees = new WeakMap<Client, { until: number; baseFee: Promise<bigint> }>();

/**
 * @param currency in which the payment is
 * @returns the most that the network takes; undefined: it takes none
 * @throws Problem `payment_invalid`
 */
export async function networkFeeOf(
  client: Client,
  transaction: FeeTransaction,
  currency: Address,
): Promise<NetworkFee | undefined> {
  const { from, gas = 0n, maxFeePerGas = 0n } = transaction;
  const [baseFee, token] = await baseFeeOf(client)
    .then(
      async (fee) =>
        [fee, fee === 0n || !from ? currency : await tokenOf(client, transaction, from, currency)] as const,
    )
    .catch((error) => {
      throw new Problem('payment_invalid', 'The network does not answer; try again in a moment.', { cause: error });
    });
  if (baseFee === 0n) return undefined;
  if (maxFeePerGas < baseFee)
    throw refused(`The transaction offers ${maxFeePerGas} for a unit of gas, and the network takes ${baseFee}`);
  // Of other tokens nobody knows whether the network can exchange them.
  if (!isAddressEqual(token, currency) && !isAddressEqual(token, Addresses.pathUsd))
    throw refused(`The network’s fee has to be in ${currency} or ${Addresses.pathUsd} (feeToken), not in ${token}`);
  return { token, microUsd: (gas * maxFeePerGas + MICRO - 1n) / MICRO };
}

function baseFeeOf(client: Client): Promise<bigint> {
  const known = baseFees.get(client);
  if (known && performance.now() < known.until) return known.baseFee;
  const baseFee = getBlock(client).then(({ baseFeePerGas }) => baseFeePerGas ?? 0n);
  baseFees.set(client, { until: performance.now() + BASE_FEE_KEPT_MS, baseFee });
  baseFee.catch(() => baseFees.delete(client));
  return baseFee;
}

/** As the network chooses it: what the transaction says, what its wallet has set, what it transfers. */
async function tokenOf(
  client: Client,
  { feeToken, calls = [] }: FeeTransaction,
  from: Hex,
  currency: Address,
): Promise<Address> {
  if (feeToken) return feeToken;
  const chosen = await Actions.fee.getUserToken(client as never, { account: from } as never);
  if (chosen) return chosen.address;
  return calls.every(({ to }) => to && isAddressEqual(to, currency)) ? currency : Addresses.pathUsd;
}

function refused(detail: string): Problem {
  return new Problem('payment_invalid', `${detail}; sign a new transaction. Nothing was charged.`);
}
