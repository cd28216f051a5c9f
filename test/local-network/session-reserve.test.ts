import { encodeFunctionData, pad } from 'viem';
import { Abis } from 'viem/tempo';
import { describe, expect, test } from 'vitest';
import { RESERVE_ADDRESS, reserveCallOf, simulatedDeposit } from '../../host/local-network/session-reserve.ts';

const payer = pad('0x1', { size: 20 });
const payee = pad('0x2', { size: 20 });
const token = pad('0x3', { size: 20 });
const none = pad('0x0', { size: 20 });
const salt = pad('0x5', { size: 32 });
const open = encodeFunctionData({
  abi: Abis.tip20ChannelReserve,
  functionName: 'open',
  args: [payee, none, token, 5n, salt, none],
});
const topUp = encodeFunctionData({
  abi: Abis.tip20ChannelReserve,
  functionName: 'topUp',
  args: [{ payer, payee, operator: none, token, salt, authorizedSigner: none, expiringNonceHash: salt }, 1n],
});

describe('deposits in simulated calls', () => {
  test.each([
    ['one call', { from: payer, to: RESERVE_ADDRESS, data: open }],
    ['one call in mixed case', { from: payer, to: `0x${RESERVE_ADDRESS.slice(2).toUpperCase()}`, input: open }],
    [
      'several calls',
      {
        from: payer,
        calls: [
          { to: token, data: '0x' },
          { to: RESERVE_ADDRESS, data: topUp },
        ],
      },
    ],
  ])('found in %s', (_, request) => {
    expect(simulatedDeposit(request)).toEqual({ touches: true, deposit: { payer, token } });
  });

  test.each([
    ['calls elsewhere', { from: payer, to: token, data: open }],
    ['nothing', undefined],
    ['a string', 'open'],
    ['calls that are null', { from: payer, calls: [null] }],
    ['calls that are no list', { from: payer, calls: {} }],
  ])('not found in %s', (_, request) => {
    expect(simulatedDeposit(request)).toEqual({ touches: false, deposit: undefined });
  });

  test('unknown calls of the reserve deposit nothing', () => {
    expect(simulatedDeposit({ from: payer, to: RESERVE_ADDRESS, data: '0x12345678' })).toEqual({
      touches: true,
      deposit: undefined,
    });
  });
});

test.each(['', '0x', '0x76', `0x76${'ff'.repeat(64)}`, '0x02f8', 'open', '0x78c0'])(
  'bytes that are no Tempo transaction (%s) are left to the chain',
  (raw) => {
    expect(reserveCallOf(raw)).toBeUndefined();
  },
);
