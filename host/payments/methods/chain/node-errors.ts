/** What an error that came of sending a transaction (viem's, with its causes) says of the transaction. */

const SILENT: ReadonlySet<string> = new Set([
  'HttpRequestError',
  'TimeoutError',
  'SocketClosedError',
  'WaitForTransactionReceiptTimeoutError',
  'TransactionReceiptNotFoundError',
]);
/**
 * EIP-7966, 4 (time is up) and 5 (not ready): the node has taken it; it may be in the next block. -32002: go-ethereum's
 * time is up. The others ask for patience, and a repeated request may have been taken before: -32005 (EIP-1474), 429
 * (Alchemy), -32007 (QuickNode).
 */
const OPEN: ReadonlySet<unknown> = new Set([4, 5, -32002, -32005, -32007, 429]);
/** JSON-RPC's internal error: the node failed somewhere, maybe after it took the transaction. */
const INTERNAL = -32603;
/** Some nodes call this an internal error, too. */
const REVERTED = /execution reverted/i;
const KNOWN = /already known|already imported|known transaction/i;
const NONCE_USED = /nonce too low/i;
/** Another with its nonce waits to be taken, such as the one that was sent when the node was silent. */
const NONCE_WAITS = /replacement transaction underpriced/i;

/** The node has it already: it is sent. */
export function isKnown(error: unknown): boolean {
  return chain(error).some(({ message }) => KNOWN.test(message));
}

/** Its nonce is used: by itself, which not every node behind an address may know yet, or by another transaction. */
export function isNonceUsed(error: unknown): boolean {
  return chain(error).some(({ message }) => NONCE_USED.test(message));
}

/** It may happen yet, or has: only the chain knows. */
export function isOpen(error: unknown): boolean {
  const leavesOpen = ({ name, code, message }: Error & { code?: unknown }) =>
    SILENT.has(name) || OPEN.has(code) || (code === INTERNAL && !REVERTED.test(message)) || NONCE_WAITS.test(message);
  return isKnown(error) || isNonceUsed(error) || chain(error).some(leavesOpen);
}

/** The node answered that it does not take it. */
export function isRefusal(error: unknown): boolean {
  if (isOpen(error)) return false;
  return chain(error).some(({ name }) => name === 'RpcRequestError' || name === 'ExecutionRevertedError');
}

function chain(error: unknown): Error[] {
  const errors: Error[] = [];
  for (let at = error; at instanceof Error; at = at.cause) errors.push(at);
  return errors;
}
