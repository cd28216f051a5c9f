// Pays by x402 `upto` (Permit2) with a wallet in the browser: what was used is taken, and never more than is signed.
// Inlined into the page of a 402 behind x402-exact.js.
import { idOf, request, typedFields } from './x402-exact.js';

const PERMIT2 = '0x000000000022D473030F116dDEE9F6B43aC78BA3';
/** x402's contract that takes at most what was signed, the same on each chain. */
const UPTO_PROXY = '0x4020A4f3b7b90ccA423B9fabCc0CE57C6C240002';
const MOST_WAIT_MS = 180_000;

const word = (hex) => hex.slice(2).toLowerCase().padStart(64, '0');

/** Permit2 moves a token only where its owner has allowed that: once for each token, by a transaction. */
export async function allowPermit2(provider, from, offer, tell) {
  const data = `0xdd62ed3e${word(from)}${word(PERMIT2)}`;
  const isAllowed = async () =>
    BigInt(await request(provider, 'eth_call', [{ to: offer.asset, data }, 'latest'])) >= BigInt(offer.amount);
  if (await isAllowed()) return;
  tell('First allow Permit2 to move this token for you: once, by a transaction of your wallet, which costs gas.');
  const approve = { from, to: offer.asset, data: `0x095ea7b3${word(PERMIT2)}${'f'.repeat(64)}` };
  const hash = await request(provider, 'eth_sendTransaction', [approve]);
  tell('Waiting for the network to take that transaction …');
  for (const until = Date.now() + MOST_WAIT_MS; Date.now() < until; ) {
    const receipt = await request(provider, 'eth_getTransactionReceipt', [hash]);
    if (receipt) break;
    await new Promise((resolve) => setTimeout(resolve, 1_000));
  }
  if (!(await isAllowed())) throw new Error('Permit2 is not allowed to move this token yet. Nothing was paid.');
}

/** @param seconds the host's time @returns the payload of a payment */
export async function signPermit(provider, from, offer, seconds) {
  const random = [...crypto.getRandomValues(new Uint8Array(32))];
  const nonce = BigInt(`0x${random.map((byte) => byte.toString(16).padStart(2, '0')).join('')}`);
  const signed = {
    permitted: { token: offer.asset, amount: offer.amount },
    spender: UPTO_PROXY,
    nonce: String(nonce),
    deadline: String(seconds + offer.maxTimeoutSeconds),
    witness: { to: offer.payTo, facilitator: offer.extra.facilitatorAddress, validAfter: '0' },
  };
  const typed = {
    types: {
      EIP712Domain: typedFields('string name', 'uint256 chainId', 'address verifyingContract'),
      PermitWitnessTransferFrom: typedFields(
        'TokenPermissions permitted',
        'address spender',
        'uint256 nonce',
        'uint256 deadline',
        'Witness witness',
      ),
      TokenPermissions: typedFields('address token', 'uint256 amount'),
      Witness: typedFields('address to', 'address facilitator', 'uint256 validAfter'),
    },
    domain: { name: 'Permit2', chainId: idOf(offer.network), verifyingContract: PERMIT2 },
    primaryType: 'PermitWitnessTransferFrom',
    message: signed,
  };
  const signature = await request(provider, 'eth_signTypedData_v4', [from, JSON.stringify(typed)]);
  return { signature, permit2Authorization: { from, ...signed } };
}
