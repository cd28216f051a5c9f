/**
 * Transactions of Solana that were changed after they were signed, in any place: each is refused, also where the node
 * says that all is well, and nothing is printed. `CREDENTIALS=1000000` tries more.
 */
import { randomBytes, randomInt } from 'node:crypto';
import {
  AccountRole,
  address,
  appendTransactionMessageInstructions,
  createTransactionMessage,
  generateKeyPairSigner,
  getBase64EncodedWireTransaction,
  partiallySignTransactionMessageWithSigners,
  pipe,
  setTransactionMessageFeePayer,
  setTransactionMessageLifetimeUsingBlockhash,
} from '@solana/kit';
import { expect, test, vi } from 'vitest';
import { readX402 } from '../../host/payments/methods/x402/credential.ts';
import { solanaRail } from '../../host/payments/methods/x402/solana/rail.ts';
import type { SolanaNetwork } from '../../host/payments/network/types.ts';
import type { Terms } from '../../host/payments/terms.ts';
import { micro } from '../../host/shared/money.ts';
import { Problem } from '../../host/shared/problem.ts';
import { DEVNET, tokenAccountOf, USDC } from '../e2e/support/solana-node.ts';

const TRANSACTIONS = Number(process.env.CREDENTIALS ?? 1_000);
const SIGNATURES = 2;

test('of changed transactions none is taken', async () => {
  const [payer, seller, feePayer] = await Promise.all([0, 1, 2].map(() => generateKeyPairSigner()));
  if (!payer || !seller || !feePayer) throw new Error('no keys');
  const network = {
    ...{ name: 'solana-devnet', network: DEVNET, token: USDC, recipient: seller.address, operators: [] },
    feePayer: feePayer.address,
    ask: async () => ({ value: { err: null } }),
  } as unknown as SolanaNetwork;
  const rail = solanaRail({ network, remote: undefined }, { mayOffer: () => true } as never);
  const route = { kind: 'route', amount: micro(50_000), mode: 'fixed', slow: false, feeBps: 0 };
  const offer = rail.offer({ ...route, payToSolana: seller.address } as unknown as Terms) as ReturnType<
    typeof rail.offer
  > & {
    requirements: object;
  };
  if (!offer) throw new Error('no offer');

  const [source, destination] = await Promise.all([tokenAccountOf(payer.address), tokenAccountOf(seller.address)]);
  const budget = address('ComputeBudget111111111111111111111111111111');
  const transaction = await partiallySignTransactionMessageWithSigners(
    pipe(
      createTransactionMessage({ version: 0 }),
      (message) => setTransactionMessageFeePayer(feePayer.address, message),
      (message) =>
        appendTransactionMessageInstructions(
          [
            { programAddress: budget, data: Buffer.from('02204e0000', 'hex') },
            { programAddress: budget, data: Buffer.from('030100000000000000', 'hex') },
            {
              programAddress: address('TokenkegQfeZyiNwAJbNbGKPFXCWuBvf9Ss623VQ5DA'),
              accounts: [
                { address: source, role: AccountRole.WRITABLE },
                { address: USDC, role: AccountRole.READONLY },
                { address: destination, role: AccountRole.WRITABLE },
                { address: payer.address, role: AccountRole.READONLY_SIGNER, signer: payer },
              ],
              data: Buffer.from('0c50c300000000000006', 'hex'),
            },
          ],
          message,
        ),
      (message) =>
        setTransactionMessageLifetimeUsingBlockhash({ blockhash: USDC as never, lastValidBlockHeight: 1n }, message),
    ),
  );
  const good = Buffer.from(getBase64EncodedWireTransaction(transaction), 'base64');
  const verify = (bytes: Buffer) => {
    const payload = { transaction: bytes.toString('base64') };
    const sent = { x402Version: 2, accepted: offer.requirements, payload };
    return rail.verify(readX402(Buffer.from(JSON.stringify(sent)).toString('base64')), offer);
  };
  const printed = vi.spyOn(console, 'error');
  expect((await verify(good)).payer.address).toBe(payer.address);

  for (let turn = 0; turn < TRANSACTIONS; turn++) {
    const bytes = Buffer.from(good);
    // The signature of who pays the fee is the host's to make.
    const signed = 1 + 64 * (SIGNATURES - 1);
    const changes = randomInt(1, 4);
    for (let change = 0; change < changes; change++)
      bytes.writeUInt8(randomInt(256), change === 0 && turn % 8 === 0 ? 0 : randomInt(signed, bytes.length));
    const cut = turn % 5 === 0 ? bytes.subarray(0, randomInt(1, bytes.length)) : bytes;
    const made = turn % 7 === 0 ? Buffer.concat([cut, randomBytes(randomInt(1, 20))]) : cut;
    if (made.equals(good)) continue;
    const text = made.toString('hex');
    const refused = await (async () => verify(made))().then(
      () => undefined,
      (error: unknown) => error,
    );
    expect(refused, text).toBeInstanceOf(Problem);
    expect((refused as Problem).code, text).toBe('payment_invalid');
  }
  expect(printed).not.toHaveBeenCalled();
});
