/**
 * How a transaction gets to the chain, and is found there. One whose fee the host pays has the host's signature, which
 * follows from the transaction and the key: after a crash it is the same, so that nothing of it has to be noted. One that
 * a facilitator elsewhere signs has a name that only the facilitator knows, so it is looked for by what the payer signed.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { getBase58Decoder } from '@solana/kit';
import type { PaymentPayload, PaymentRequirements } from '@x402/core/types';
import type { SolanaNetwork } from '../../../network/types.ts';
import type { SettleResult } from '../../../terms.ts';
import type { RemoteFacilitator } from '../remote-facilitator.ts';
import type { X402Requirements } from '../requirements.ts';
import { confirmed, isOver, outcome, POLL_MS } from './look-up.ts';
import { Search } from './search.ts';
import type { Sent } from './transaction.ts';

export interface Settler {
  settle(sent: Sent): Promise<SettleResult>;
  /** Asks the chain, and tries it again where that is safe. */
  reconcile(sent: Sent): Promise<SettleResult>;
}

const UNKNOWN: SettleResult = { status: 'unknown', reason: 'the network has not confirmed it yet' };
const EXPIRED: SettleResult = { status: 'failed', reason: 'the transaction expired before the network took it' };

export function ownSettler({ ask, sign }: SolanaNetwork): Settler {
  async function signed({ wire, message }: Sent) {
    const signature = await sign(message);
    wire.set(signature, 1);
    return { signature: getBase58Decoder().decode(signature), wire: wire.toString('base64') };
  }

  /** @returns undefined where it is not known to have been refused */
  async function send(wire: string): Promise<SettleResult | undefined> {
    try {
      await ask('sendTransaction', [wire, { encoding: 'base64', preflightCommitment: 'confirmed' }]);
    } catch (error) {
      if (isRefusal(error)) return { status: 'failed', reason: 'the network refused the transaction' };
    }
    return undefined;
  }

  return {
    async settle(sent) {
      const { signature, wire } = await signed(sent);
      const refused = await send(wire);
      // A node may refuse what it has taken a moment ago.
      return refused ? ((await outcome(ask, signature)) ?? refused) : confirmed(ask, signature);
    },

    async reconcile(sent) {
      const { signature, wire } = await signed(sent);
      const over = await isOver(ask, sent.blockhash, sent.payment.createdAt);
      const found = await outcome(ask, signature);
      if (found) return found;
      if (over) return EXPIRED;
      await send(wire);
      return (await outcome(ask, signature)) ?? UNKNOWN;
    },
  };
}

/**
 * @param remote undefined: there is no facilitator any more, and what it was asked for is only looked for
 * @param requirements what a payment was offered for
 */
export function remoteSettler(
  { ask }: SolanaNetwork,
  remote: RemoteFacilitator | undefined,
  requirements: (sent: Sent) => X402Requirements,
): Settler {
  const search = new Search(ask);

  /** What it says counts for nothing but where to look first. */
  async function asked(sent: Sent, facilitator: RemoteFacilitator): Promise<SettleResult> {
    const required = requirements(sent) as PaymentRequirements;
    const payload = { ...sent.credential.payload, x402Version: 2, accepted: required } as PaymentPayload;
    const said = await facilitator.settle(payload, required).catch(() => undefined);
    // Whoever says that it is done may know of it before this host's node, or lie.
    const end = performance.now() + (said?.success ? facilitator.timeoutMs : 0);
    for (;;) {
      const found = await search.find(sent, said?.transaction);
      if (found && found.status !== 'unknown') return facilitator.noted(sent.payment, found);
      if (performance.now() >= end) return facilitator.noted(sent.payment, found ?? UNKNOWN);
      await delay(POLL_MS);
    }
  }

  return {
    settle: async (sent) => (remote ? asked(sent, remote) : UNKNOWN),

    async reconcile(sent) {
      const over = await isOver(ask, sent.blockhash, sent.payment.createdAt);
      const found = await search.find(sent);
      const result = found ?? (over ? EXPIRED : undefined);
      if (result) return remote?.noted(sent.payment, result) ?? result;
      return remote?.mayAsk(sent.payment) ? asked(sent, remote) : UNKNOWN;
    },
  };
}

/** Whether the node looked at the transaction and did not pass it on; one that it knows already it refuses, too. */
function isRefusal(error: unknown): boolean {
  const { code, message, details } = error as { code?: number; message?: string; details?: string };
  return code === -32002 && !/already.?(been )?processed/i.test(`${message} ${details}`);
}
