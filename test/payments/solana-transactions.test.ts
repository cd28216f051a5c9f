/**
 * What a payer may write for a payment on Solana: transactions that were changed after they were signed, or signed with other
 * instructions, and credentials around them. Each that is not the payment is refused, also where the node says that all is
 * well, and nothing is printed. `CREDENTIALS=1000000` tries more.
 */
import { randomBytes, randomInt } from 'node:crypto';
import {
  AccountRole,
  type Address,
  address,
  appendTransactionMessageInstructions,
  compileTransactionMessage,
  createTransactionMessage,
  generateKeyPairSigner,
  getAddressEncoder,
  getBase58Decoder,
  getCompiledTransactionMessageEncoder,
  type Instruction,
  isSolanaError,
  type KeyPairSigner,
  pipe,
  setTransactionMessageFeePayer,
  setTransactionMessageLifetimeUsingBlockhash,
  signBytes,
} from '@solana/kit';
import { beforeAll, beforeEach, expect, test, vi } from 'vitest';
import { readX402 } from '../../host/payments/methods/x402/credential.ts';
import { x402 } from '../../host/payments/methods/x402/index.ts';
import type { X402Offer } from '../../host/payments/methods/x402/offer.ts';
import { solanaRail } from '../../host/payments/methods/x402/solana/rail.ts';
import type { SolanaNetwork } from '../../host/payments/network/types.ts';
import type { Terms } from '../../host/payments/terms.ts';
import { micro } from '../../host/shared/money.ts';
import { Problem } from '../../host/shared/problem.ts';
import { DEVNET, TOKEN_PROGRAM, tokenAccountOf, USDC } from '../e2e/support/solana-node.ts';

const TRIES = Number(process.env.CREDENTIALS ?? 100);
const TIME = { timeout: 120_000 + TRIES * 100 };
const PRICE = 50_000n;
/** Where the payer's signature ends: after the count and that of who pays the fee, which is the host's to make. */
const [SIGNED, MESSAGE] = [1 + 64, 1 + 2 * 64];
const RESOURCE = 'https://example.com/a';
const TOKEN_2022 = address('TokenzQdBNbLqP5VEhdkAS6EPFLC1PHnBqCXEpPxuEb');
const BUDGET = address('ComputeBudget111111111111111111111111111111');
const MEMO = address('MemoSq4gqABAXKb96qnH8TysNcWxMyWCqXgDLGmfcHr');
const LIGHTHOUSE = address('L2TExMFKdjpN9kozasaurPirfHy9P8sbXoAN1qA3S95');
const BLOCK = address('GfVcyD4kkTrj4bKc7WA9sZCin9JDbdT4Zkd3EittNR1W');
const SYSTEM = address('11111111111111111111111111111111');

let payer: KeyPairSigner;
let feePayer: Address;
let rail: ReturnType<typeof solanaRail>;
let offer: X402Offer;
let usual: Written;
let good: Buffer;
let printed: ReturnType<typeof vi.spyOn>;
/** Accounts that are none of the payment's. */
let others: Address[];

/** A transaction by its parts. */
interface Written {
  feePayer: Address;
  units: Buffer;
  priority: Buffer;
  program: Address;
  source: Address;
  mint: Address;
  destination: Address;
  authority: Address;
  transfer: Buffer;
  more: Instruction[];
  order: number[];
  version: 0 | 'legacy';
}

beforeAll(async () => {
  const [seller, host, other] = await Promise.all([0, 1, 2].map(() => generateKeyPairSigner()));
  payer = await generateKeyPairSigner();
  if (!seller || !host || !other) throw new Error('no keys');
  feePayer = host.address;
  const network = {
    ...{ name: 'solana-devnet', network: DEVNET, token: USDC, recipient: seller.address, operators: [] },
    feePayer,
    ask: async () => ({ value: { err: null } }),
  } as unknown as SolanaNetwork;
  rail = solanaRail({ network, remote: undefined }, { mayOffer: () => true } as never);
  const route = { kind: 'route', amount: micro(PRICE), mode: 'fixed', slow: false, feeBps: 0 };
  offer = rail.offer({ ...route, payToSolana: seller.address } as unknown as Terms) as X402Offer;
  const [source, destination, own, another] = await Promise.all([
    tokenAccountOf(payer.address),
    tokenAccountOf(seller.address),
    tokenAccountOf(feePayer),
    tokenAccountOf(other.address),
  ]);
  const elsewhere = await tokenAccountOf(seller.address, USDC, TOKEN_2022);
  others = [source, own, another, elsewhere, seller.address, feePayer, payer.address, SYSTEM, other.address];
  usual = {
    feePayer,
    units: Buffer.from('02204e0000', 'hex'),
    priority: Buffer.from('030100000000000000', 'hex'),
    program: TOKEN_PROGRAM,
    source,
    mint: USDC,
    destination,
    authority: payer.address,
    transfer: Buffer.from('0c50c300000000000006', 'hex'),
    more: [],
    order: [0, 1, 2],
    version: 0,
  };
  good = await signed(messageOf(usual));
});
beforeEach(() => {
  printed = vi.spyOn(console, 'error');
});

function compiled(made: Written): Buffer | undefined {
  try {
    return messageOf(made);
  } catch (error) {
    if (isSolanaError(error)) return undefined;
    throw error;
  }
}

function messageOf(made: Written): Buffer {
  const readonly = (of: Address) => ({ address: of, role: AccountRole.READONLY });
  const writable = (of: Address) => ({ address: of, role: AccountRole.WRITABLE });
  const transfer = {
    programAddress: made.program,
    accounts: [
      writable(made.source),
      readonly(made.mint),
      writable(made.destination),
      { address: made.authority, role: AccountRole.READONLY_SIGNER },
    ],
    data: made.transfer,
  };
  const first: Instruction[] = [
    { programAddress: BUDGET, data: made.units },
    { programAddress: BUDGET, data: made.priority },
    transfer,
  ];
  const instructions = [...made.order.flatMap((index) => first[index] ?? []), ...made.more];
  const message = pipe(
    createTransactionMessage({ version: made.version }),
    (empty) => setTransactionMessageFeePayer(made.feePayer, empty),
    (begun) => appendTransactionMessageInstructions(instructions, begun),
    (begun) =>
      setTransactionMessageLifetimeUsingBlockhash({ blockhash: BLOCK as never, lastValidBlockHeight: 1n }, begun),
  );
  return Buffer.from(getCompiledTransactionMessageEncoder().encode(compileTransactionMessage(message)));
}

/** By the payer, as the second of as many as the message asks for. */
async function signed(message: Buffer): Promise<Buffer> {
  const count = Math.max(2, (message[0] === 0x80 ? message[1] : message[0]) ?? 2);
  const signatures = Buffer.alloc(64 * count);
  signatures.set(await signBytes(payer.keyPair.privateKey, new Uint8Array(message)), 64);
  return Buffer.concat([Buffer.from([count]), signatures, message]);
}

const credentialOf = (transaction: Buffer) => ({
  x402Version: 2,
  resource: { url: RESOURCE },
  accepted: { ...offer.requirements } as Record<string, unknown>,
  payload: { transaction: transaction.toString('base64') } as Record<string, unknown>,
});

async function verify(credential: object) {
  const presented = readX402(Buffer.from(JSON.stringify(credential)).toString('base64'));
  const terms = { amount: micro(PRICE) } as Terms;
  const asked = { realm: 'example.com', resource: RESOURCE, digest: undefined, now: Date.now() };
  return rail.verify(presented, x402.match(presented, { terms, offers: [offer] }, asked));
}

/** @param what the input, for whoever looks for the reason */
async function refused(credential: object, what: string): Promise<void> {
  const error = await verify(credential).then(
    () => undefined,
    (reason: unknown) => reason,
  );
  expect(error, what).toBeInstanceOf(Problem);
  expect((error as Problem).code, what).toBe('payment_invalid');
}

const pick = <T>(list: readonly T[]): T => list[randomInt(list.length)] as T;

test('the payment itself is taken', async () => {
  expect((await verify(credentialOf(good))).payer.address).toBe(payer.address);
});

test('of transactions that were changed after they were signed none is taken', TIME, async () => {
  for (let turn = 0; turn < TRIES; turn++) {
    const bytes = Buffer.from(good);
    const changes = randomInt(1, 4);
    for (let change = 0; change < changes; change++)
      bytes.writeUInt8(randomInt(256), change === 0 && turn % 8 === 0 ? 0 : randomInt(SIGNED, bytes.length));
    const cut = turn % 5 === 0 ? bytes.subarray(0, randomInt(1, bytes.length)) : bytes;
    const made = turn % 7 === 0 ? Buffer.concat([cut, randomBytes(randomInt(1, 20))]) : cut;
    if (!made.equals(good)) await refused(credentialOf(made), made.toString('hex'));
  }
  expect(printed).not.toHaveBeenCalled();
});

const amountOf = (amount: bigint, decimals = 6, code = 12) => {
  const data = Buffer.alloc(10, code);
  data.writeBigUInt64LE(BigInt.asUintN(64, amount), 1);
  data.writeUInt8(decimals, 9);
  return data;
};
const unitsOf = (units: number) => {
  const data = Buffer.alloc(5, 2);
  data.writeUInt32LE(units, 1);
  return data;
};
const priorityOf = (price: bigint) => {
  const data = Buffer.alloc(9, 3);
  data.writeBigUInt64LE(price, 1);
  return data;
};
const instruction = (programAddress: Address, data: Buffer, account?: Address, role = AccountRole.WRITABLE) => ({
  programAddress,
  data,
  ...(account === undefined ? {} : { accounts: [{ address: account, role }] }),
});

/** What the chain or x402 leaves to the payer. */
const HARMLESS: (() => Partial<Written>)[] = [
  () => ({ units: unitsOf(randomInt(100_001)) }),
  () => ({ priority: priorityOf(BigInt(randomInt(50_001))) }),
  () => ({ source: getBase58Decoder().decode(randomBytes(32)) as Address }),
  () => ({ more: [instruction(MEMO, randomBytes(randomInt(1, 64)).fill('x'))] }),
  () => ({ more: [instruction(LIGHTHOUSE, randomBytes(randomInt(1, 16)), usual.source)] }),
];
const HOSTILE: (() => Partial<Written>)[] = [
  // Another sum, or what could be read as the same.
  () => ({ transfer: amountOf(PRICE + pick([-1n, 1n, 256n, 1n << 32n, 1n << 63n])) }),
  () => ({ transfer: amountOf(BigInt(randomInt(50_000))) }),
  () => ({ transfer: Buffer.from(amountOf(PRICE).subarray(0, randomInt(10))) }),
  () => ({ transfer: amountOf(PRICE, 6, pick([0, 3, 4, 7, 8, 13, 15, 255])) }),
  // To another account, of another token, by another program or wallet.
  () => ({ destination: pick(others) }),
  () => ({ destination: getBase58Decoder().decode(randomBytes(32)) as Address }),
  () => ({ mint: pick(others) }),
  () => ({ program: pick([TOKEN_2022, MEMO, BUDGET, SYSTEM, LIGHTHOUSE, USDC]) }),
  () => ({ authority: pick(others.filter((one) => one !== payer.address)) }),
  () => ({ feePayer: pick(others.filter((one) => one !== feePayer)) }),
  () => ({ source: feePayer }),
  () => ({ source: usual.destination }),
  // At the cost of who pays the fee.
  () => ({ units: unitsOf(100_001 + randomInt(1_000_000)) }),
  () => ({ priority: priorityOf(50_001n + BigInt(randomInt(1_000_000_000))) }),
  () => ({ units: randomBytes(pick([0, 1, 4])) }),
  () => ({ priority: randomBytes(pick([0, 1, 5])) }),
  () => ({ more: [instruction(LIGHTHOUSE, Buffer.from([0]), feePayer, AccountRole.WRITABLE_SIGNER)] }),
  () => ({ more: [instruction(SYSTEM, Buffer.alloc(12, 2), pick(others))] }),
  () => ({
    more: [instruction(pick([BUDGET, TOKEN_PROGRAM, TOKEN_2022, USDC]), randomBytes(randomInt(12)), usual.source)],
  }),
  () => ({ more: Array.from({ length: 5 }, () => instruction(MEMO, Buffer.from('x'))) }),
  () => ({ more: [instruction(MEMO, Buffer.from('x'), pick(others.slice(0, 5)), AccountRole.READONLY_SIGNER)] }),
  () => ({ order: pick([[1, 0, 2], [2, 0, 1], [0, 1], [0, 2], [], [0, 1, 1, 2], [0, 1, 2, 2]]) }),
];

test(
  'of transactions that a payer signs with other instructions those alone are taken that pay the price',
  TIME,
  async () => {
    let taken = 0;
    for (let turn = 0; turn < TRIES; turn++) {
      const isHostile = turn % 4 !== 0;
      const made: Written = { ...usual, version: pick([0, 'legacy']), ...pick(HARMLESS)() };
      const written = isHostile ? { ...made, ...pick(HOSTILE)() } : made;
      const message = compiled(written);
      // An account cannot be all of it at once.
      if (!message) continue;
      const transaction = await signed(message);
      const what = JSON.stringify(written);
      if (isHostile) await refused(credentialOf(transaction), what);
      else {
        expect((await verify(credentialOf(transaction))).payer.address, what).toBe(payer.address);
        taken += 1;
      }
    }
    expect(taken).toBe(Math.ceil(TRIES / 4));
    expect(printed).not.toHaveBeenCalled();
  },
);

test('a transfer of an account whose owner does not sign is refused; members of a multisig sign for it', async () => {
  const message = good.subarray(MESSAGE);
  // Before its data: program, how many accounts, their places in the message (source, token, destination, owner), length.
  const data = message.indexOf(usual.transfer);
  const [program = 0, count, ...accounts] = message.subarray(data - 7, data - 1);
  expect([count, accounts.at(-1)]).toEqual([4, 1]);
  const by = (owners: number[]) =>
    Buffer.concat([
      message.subarray(0, data - 6),
      Buffer.from([3 + owners.length, ...accounts.slice(0, 3), ...owners]),
      message.subarray(data - 1),
    ]);
  const notSigning = program;
  await refused(credentialOf(await signed(by([notSigning]))), 'nobody');
  await refused(credentialOf(await signed(by([notSigning, notSigning]))), 'no member');
  // The chain looks whether it is one, and who its members are.
  await verify(credentialOf(await signed(by([notSigning, 1]))));
});

test(
  'of messages that a payer signs with a byte changed those alone are taken that leave the payment as it is',
  TIME,
  async () => {
    const message = good.subarray(MESSAGE);
    const place = (of: Uint8Array, from: number, length: number) => {
      const start = message.indexOf(of) + from;
      return { start, end: start + length };
    };
    // The chain's to judge: which accounts are written to, the block, where the money comes from. And what is within limits.
    const free = [
      { start: 2, end: 4 },
      place(getAddressEncoder().encode(BLOCK) as Uint8Array, 0, 32),
      place(getAddressEncoder().encode(usual.source) as Uint8Array, 0, 32),
      // Which of the accounts that is.
      place(usual.transfer, -5, 1),
      place(usual.units, 1, 4),
      place(usual.priority, 1, 8),
      // Its decimals, which the token program compares.
      place(usual.transfer, 9, 1),
    ];
    let taken = 0;
    for (let turn = 0; turn < TRIES; turn++) {
      const changed = Buffer.from(message);
      const at = randomInt(changed.length);
      changed.writeUInt8(randomInt(256), at);
      const made = turn % 5 === 0 ? Buffer.concat([changed, randomBytes(randomInt(1, 20))]) : changed;
      const transaction = await signed(made);
      const isFree =
        made.length === message.length &&
        (changed.equals(message) || free.some(({ start, end }) => at >= start && at < end));
      const what = `${at} ${made.toString('hex')}`;
      if (!isFree) await refused(credentialOf(transaction), what);
      else
        taken += await verify(credentialOf(transaction)).then(
          () => 1,
          (error) => (error instanceof Problem ? 0 : Number.NaN),
        );
    }
    expect(taken).toBeGreaterThan(0);
    expect(printed).not.toHaveBeenCalled();
  },
);

/** Values that a mistaken or malicious client could write. */
const ODD = [
  null,
  true,
  0,
  -1,
  50_000,
  '',
  'x',
  '0',
  '-1',
  '5e4',
  '050000',
  '50000 ',
  '0xc350',
  [],
  {},
  { a: 'b' },
  '\u0000',
];

test('of credentials that were changed around the transaction none is taken', TIME, async () => {
  const essential = ['scheme', 'network', 'asset', 'amount', 'payTo'];
  for (let turn = 0; turn < TRIES; turn++) {
    const credential = credentialOf(good);
    const { accepted, payload } = credential;
    const name = pick(essential);
    const text = payload.transaction as string;
    const at = randomInt(text.length);
    switch (randomInt(7)) {
      case 0:
        accepted[name] = pick(ODD.filter((odd) => odd !== accepted[name]));
        break;
      case 1:
        delete accepted[name];
        break;
      case 2:
        accepted[name] = accepted[pick(essential.filter((one) => one !== name))];
        break;
      case 3:
        Object.assign(
          accepted,
          pick([
            { network: 'solana:5eykt4UsFv8P8NJdTREpY1vzqKqZKvdp' },
            { network: 'eip155:8453' },
            { scheme: 'upto' },
            { payTo: pick(others.filter((one) => one !== accepted.payTo)) },
            { asset: pick(others) },
            { amount: String(randomInt(50_000)) },
          ]),
        );
        break;
      case 4:
        payload.transaction = pick(ODD);
        break;
      case 5:
        payload.transaction = pick([
          text.slice(0, at),
          text + text,
          text.slice(0, at) + pick([...' -_%"\n']) + text.slice(at),
          'A'.repeat(randomInt(4_000)),
        ]);
        break;
      case 6:
        credential.resource.url = pick([
          '',
          'x',
          `${RESOURCE}/b`,
          `${RESOURCE}?b`,
          'https://example.org/a',
          'http://example.com/a',
        ]);
        break;
    }
    await refused(credential, JSON.stringify(credential));
  }
  expect(printed).not.toHaveBeenCalled();
});
