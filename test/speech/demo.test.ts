import { authorizationTypes, PERMIT2_ADDRESS, uptoPermit2WitnessTypes, x402UptoPermit2ProxyAddress } from '@x402/evm';
import { expect, it } from 'vitest';
import { EXACT_TYPES, PERMIT2, UPTO_PROXY, UPTO_TYPES } from '../../builtin-tenants/speech/demo/signing.ts';

it('the page signs what x402’s own client signs', () => {
  expect(PERMIT2).toBe(PERMIT2_ADDRESS);
  expect(UPTO_PROXY).toBe(x402UptoPermit2ProxyAddress);
  expect(UPTO_TYPES).toEqual(uptoPermit2WitnessTypes);
  expect(EXACT_TYPES).toEqual(authorizationTypes);
});
