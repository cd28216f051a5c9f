/**
 * The keys of a payment network: made once from the system's randomness, kept in the data folder with mode 0600.
 * Nothing here has a fixed seed, and nothing here is ever logged.
 */
import type { Hex } from 'viem';
import { generatePrivateKey, nonceManager, privateKeyToAccount } from 'viem/accounts';
import { z } from 'zod';
import { keyFilesIn } from '../../registry/key-file.ts';
import { Problem } from '../../shared/problem.ts';
import type { HostAccounts, TestWallet } from './types.ts';

const TEST_WALLETS = 8;

const privateKey = z.string().regex(/^0x[0-9a-fA-F]{64}$/) as unknown as z.ZodType<Hex>;
const keyFileSchema = z.object({
  facilitator: privateKey,
  settler: privateKey,
  feePayer: privateKey,
  operator: privateKey,
  wallets: z.array(privateKey),
});

export interface NetworkKeys {
  accounts: HostAccounts;
  wallets: TestWallet[];
}

/**
 * Reads `network-keys.json`, or makes it.
 * @param keyFiles default: files of the data folder
 * @throws Problem `invalid_config` when the file is there but unusable: new keys would strand what the old ones hold
 */
export async function loadNetworkKeys(dataFolder: string, keyFiles = keyFilesIn(dataFolder)): Promise<NetworkKeys> {
  const file = keyFiles('network-keys.json');
  const text = (await file.read()) ?? (await file.add(JSON.stringify(freshKeys(), null, 2)));
  const parsed = keyFileSchema.safeParse(parseJson(text));
  if (!parsed.success) {
    throw new Problem(
      'invalid_config',
      `${file.name} is damaged: restore it from a backup, or move it away to get new keys.`,
    );
  }
  const keys = parsed.data;
  return {
    accounts: {
      facilitator: privateKeyToAccount(keys.facilitator, { nonceManager }),
      settler: privateKeyToAccount(keys.settler),
      feePayer: privateKeyToAccount(keys.feePayer),
      operator: privateKeyToAccount(keys.operator),
    },
    wallets: keys.wallets.map((key) => ({ address: privateKeyToAccount(key).address, privateKey: key })),
  };
}

function freshKeys(): z.infer<typeof keyFileSchema> {
  return {
    facilitator: generatePrivateKey(),
    settler: generatePrivateKey(),
    feePayer: generatePrivateKey(),
    operator: generatePrivateKey(),
    wallets: Array.from({ length: TEST_WALLETS }, () => generatePrivateKey()),
  };
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
