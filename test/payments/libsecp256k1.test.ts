/** Whom the quick recovery names is whom @noble/curves names, and what that refuses it refuses in the same words. */
import { randomBytes, randomInt } from 'node:crypto';
import { secp256k1 } from '@noble/curves/secp256k1';
import { recoverAddress } from 'viem';
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts';
import { expect, test } from 'vitest';
import { useLibsecp256k1 } from '../../host/payments/libsecp256k1.ts';

const INPUTS = Number(process.env.RECOVERIES ?? 300);

const { Signature, ProjectivePoint, utils, CURVE, sign } = secp256k1;
const usual = Signature.prototype.recoverPublicKey;
const usualKey = ProjectivePoint.fromPrivateKey;
useLibsecp256k1();
const quick = Signature.prototype.recoverPublicKey;

type Signed = InstanceType<typeof Signature>;

interface Input {
  r: bigint;
  s: bigint;
  recovery: number;
  hash: Uint8Array;
}

/** Numbers at which something changes: ends of the group and of the field, half of the order, x without a point. */
const EDGES = [
  1n,
  2n,
  5n,
  CURVE.n - 1n,
  CURVE.n / 2n,
  CURVE.n / 2n + 1n,
  CURVE.Fp.ORDER - CURVE.n,
  CURVE.Fp.ORDER - CURVE.n - 1n,
];

function someInput(): Input {
  const hash = randomBytes(32);
  const { r, s, recovery } = sign(hash, utils.randomPrivateKey());
  return { r, s, recovery, hash };
}

const pick = <T>(list: readonly T[]): T => list[randomInt(list.length)] as T;
const number = () => (BigInt(`0x${randomBytes(32).toString('hex')}`) % (CURVE.n - 1n)) + 1n;

const MUTATIONS: ((input: Input) => Partial<Input>)[] = [
  () => ({}),
  ({ recovery }) => ({ recovery: 1 - recovery }),
  () => ({ recovery: randomInt(6) }),
  ({ s, recovery }) => ({ s: CURVE.n - s, recovery: 1 - recovery }),
  () => ({ r: number() }),
  () => ({ s: number() }),
  () => ({ r: pick(EDGES) }),
  () => ({ s: pick(EDGES) }),
  () => ({ r: pick(EDGES), s: pick(EDGES), recovery: randomInt(4) }),
  () => ({ hash: randomBytes(pick([0, 1, 31, 32, 33, 64])) }),
  () => ({ hash: new Uint8Array(32).fill(pick([0, 255])) }),
  // What is signed cancels the key: no point is left.
  () => {
    const [k, factor] = [number(), number()];
    const point = ProjectivePoint.BASE.multiply(k);
    const hash = Buffer.from(((factor * k) % CURVE.n).toString(16).padStart(64, '0'), 'hex');
    return { r: point.x % CURVE.n, s: factor, recovery: point.hasEvenY() ? 0 : 1, hash };
  },
];

function outcome(recover: Signed['recoverPublicKey'], { r, s, recovery, hash }: Input, asText: boolean): string {
  try {
    const signature = new Signature(r, s);
    const given = recovery > 3 ? Object.assign(signature, { recovery }) : signature.addRecoveryBit(recovery);
    return recover.call(given as never, asText ? Buffer.from(hash).toString('hex') : hash).toHex(false);
  } catch (error) {
    return String(error);
  }
}

test('random, mutated and extreme signatures have the same signer, or the same refusal', () => {
  let signed = 0;
  for (let turn = 0; turn < INPUTS; turn++) {
    const input = someInput();
    const mutated = { ...input, ...MUTATIONS[turn % MUTATIONS.length]?.(input) };
    const asText = turn % 2 === 0;
    const expected = outcome(usual, mutated, asText);
    expect(outcome(quick, mutated, asText), JSON.stringify({ ...mutated, r: `${mutated.r}`, s: `${mutated.s}` })).toBe(
      expected,
    );
    expect(outcome(quick, mutated, !asText), 'the second time').toBe(expected);
    if (expected.startsWith('04')) signed += 1;
  }
  expect(signed).toBeGreaterThan(INPUTS / 3);
});

test('viem recovers by it', async () => {
  const account = privateKeyToAccount(generatePrivateKey());
  const hash = `0x${randomBytes(32).toString('hex')}` as const;
  const signature = await account.sign({ hash });
  let asked = 0;
  Signature.prototype.recoverPublicKey = function (this: Signed, given: Uint8Array | string) {
    asked += 1;
    return quick.call(this as never, given);
  };
  try {
    expect(await recoverAddress({ hash, signature })).toBe(account.address);
  } finally {
    Signature.prototype.recoverPublicKey = quick;
  }
  expect(asked).toBe(1);
});

test('a private key has the point that @noble/curves finds, and what is none is refused in the same words', () => {
  const hex = (scalar: bigint) => scalar.toString(16).padStart(64, '0');
  const keys = [...EDGES, ...Array.from({ length: 20 }, number)].map(hex);
  for (const key of [
    ...keys,
    keys[0]?.toUpperCase() ?? '',
    hex(0n),
    hex(CURVE.n),
    'f'.repeat(64),
    'ab',
    'x'.repeat(64),
  ]) {
    const said = (point: () => InstanceType<typeof ProjectivePoint>) => {
      try {
        return point().toHex(false);
      } catch (error) {
        return String(error);
      }
    };
    expect(said(() => ProjectivePoint.fromPrivateKey(key))).toBe(said(() => usualKey.call(ProjectivePoint, key)));
  }
});
