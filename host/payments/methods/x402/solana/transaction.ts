/** A transaction of Solana as its payer signed it: what it says, and that its instructions leave who pays the fee alone. */
import {
  type CompiledTransactionMessage,
  getCompiledTransactionMessageDecoder,
  getCompiledTransactionMessageEncoder,
  getTransactionDecoder,
} from '@solana/kit';
import type { PaymentRow } from '../../../../registry/payments/schema.ts';
import { Problem } from '../../../../shared/problem.ts';
import { readX402, signedMessage, type X402Credential } from '../credential.ts';

type Message = CompiledTransactionMessage & { lifetimeToken: string };

/** Where x402 has the transfer among the instructions. */
const TRANSFER = 2;
/** What a transfer has at which place among its accounts (https://docs.rs/spl-token, `TransferChecked`). */
const [SOURCE, DESTINATION, OWNER] = [0, 2, 3];

/** A payment's transaction, after it was verified. */
export interface Sent {
  payment: PaymentRow;
  credential: X402Credential;
  wire: Buffer;
  /** What is signed, which the chain takes once, whoever signs it. */
  message: Uint8Array;
  blockhash: string;
  feePayer: string;
  /** The account that the money comes from. */
  source: string;
}

export function sentBy(payment: PaymentRow): Sent {
  const credential = readX402(payment.credential ?? '');
  const wire = transactionOf(credential);
  const message = signedMessage(wire);
  const compiled = decoded(message);
  const { lifetimeToken: blockhash, staticAccounts } = compiled;
  const [feePayer = ''] = staticAccounts;
  return { payment, credential, wire, message, blockhash, feePayer, source: sourceOf(compiled) };
}

/** The account that the transfer takes from. */
export function sourceOf(message: CompiledTransactionMessage): string {
  const transfer = 'instructions' in message ? message.instructions[TRANSFER] : undefined;
  return message.staticAccounts[transfer?.accountIndices?.[SOURCE] ?? -1] ?? '';
}

export function transactionOf({ payload: { payload } }: X402Credential): Buffer {
  if ('transaction' in payload) return Buffer.from(payload.transaction, 'base64');
  throw new Problem('payment_invalid', 'Not a payment on Solana.');
}

function decoded(message: Uint8Array): Message {
  return getCompiledTransactionMessageDecoder().decode(message) as Message;
}

/**
 * What x402's code cannot read it prints, and callers could fill the log with it. What it reads in spite of its form, such
 * as bytes after the end, the chain does not take.
 * @throws Problem `payment_invalid`
 */
export function readable(transaction: Uint8Array): CompiledTransactionMessage {
  try {
    const { messageBytes } = getTransactionDecoder().decode(transaction);
    const message = decoded(new Uint8Array(messageBytes));
    if (!Buffer.from(getCompiledTransactionMessageEncoder().encode(message)).equals(Buffer.from(messageBytes)))
      throw new Error('it is written in another form');
    if (!namesOnlyAccounts(message)) throw new Error('it names an account that it does not have');
    return message;
  } catch (cause) {
    throw new Problem('payment_invalid', 'This is not a readable transaction of Solana.', { cause });
  }
}

/** Of tables of accounts x402 says more. */
function namesOnlyAccounts(message: CompiledTransactionMessage): boolean {
  const { staticAccounts } = message;
  if (!('instructions' in message) || ('addressTableLookups' in message && message.addressTableLookups?.length))
    return true;
  return message.instructions.every(({ accountIndices = [] }) =>
    accountIndices.every((index) => index < staticAccounts.length),
  );
}

/**
 * Who pays the fee signs for that alone. Instructions that x402 lets through beside the transfer, those of Lighthouse,
 * could take the rent of new accounts from whoever of the signers they name.
 * @throws Problem `payment_invalid`
 */
export function assertLeavesFeePayerAlone(message: CompiledTransactionMessage): void {
  const instructions = 'instructions' in message ? message.instructions : [];
  const isUsed = instructions.some(
    ({ accountIndices, programAddressIndex }) => programAddressIndex === 0 || accountIndices?.includes(0),
  );
  if (isUsed || instructions.length === 0)
    throw new Problem('payment_invalid', 'x402: the wallet that pays the fee has no part in the instructions.');
}

/**
 * The money is of another account than the one that it goes to, because the token program moves nothing between an
 * account and itself. Its owner signs, or members of a multisig, which stand behind it. x402 leaves both to the chain.
 * @throws Problem `payment_invalid`
 */
export function assertMovesMoneyOfSigner(message: CompiledTransactionMessage): void {
  const transfer = 'instructions' in message ? message.instructions[TRANSFER] : undefined;
  const isSigner = (index: number) => index < message.header.numSignerAccounts;
  const accounts = transfer?.accountIndices ?? [];
  if (accounts[SOURCE] === accounts[DESTINATION])
    throw new Problem('payment_invalid', 'x402: the account that pays is the one that is paid.');
  if (!accounts.slice(OWNER).some(isSigner))
    throw new Problem('payment_invalid', 'x402: the owner of the account that pays has not signed.');
}
