/** Keys of a wallet's keychain, which pay in its name (Tempo's account keychain). */
import type { Client, Hex } from 'viem';
import { generatePrivateKey } from 'viem/accounts';
import { Actions } from 'viem/tempo';
import { until } from './until.ts';

export interface Authorization {
  token: Hex;
  wallet: Hex;
  key: { accessKeyAddress: Hex };
  /** In the token's smallest unit. */
  limit: bigint;
  /** Until the key ends. */
  seconds?: number;
}

/** The wallet lets a key spend so much. @param client of the wallet */
export async function authorizeKey(client: Client, authorization: Authorization): Promise<void> {
  const { token, wallet, key, limit, seconds = 600 } = authorization;
  const expiry = Math.floor(Date.now() / 1000) + seconds;
  const limits = [{ token, limit }];
  await Actions.accessKey.authorize(
    client as never,
    { accessKey: key, expiry, limits, witness: generatePrivateKey() } as never,
  );
  // The local network gives such a transaction no receipt.
  const asked = { account: wallet, accessKey: key.accessKeyAddress };
  await until(async () =>
    Actions.accessKey.getMetadata(client as never, asked as never).then(
      ({ address }) => address.toLowerCase() === key.accessKeyAddress.toLowerCase(),
      () => false,
    ),
  );
}
