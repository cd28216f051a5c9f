/**
 * The tokens that the command knows, with their decimals. An amount in a 402 is a bare integer: what it is worth
 * depends on the token, so a token that is not listed here is never paid without being allowed by name.
 */
import { Failure } from '../terminal/failure.ts';
import type { LocalNetworkInfo } from '../wallet/local-host.ts';

export interface Asset {
  chainId: number;
  /** Lower case. */
  token: string;
  decimals: number;
  symbol: string;
  /** Worth nothing. */
  test: boolean;
}

/** Sources: mppx 0.11 tempo/internal/defaults; https://developers.circle.com/stablecoins/usdc-contract-addresses */
const KNOWN: Asset[] = [
  asset(4217, '0x20C000000000000000000000b9537d11c60E8b50', 6, 'USDC.e', false),
  asset(4217, '0x20c0000000000000000000000000000000000000', 6, 'pathUSD', false),
  asset(42431, '0x20c0000000000000000000000000000000000000', 6, 'pathUSD', true),
  asset(8453, '0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913', 6, 'USDC', false),
  asset(84532, '0x036CbD53842c5426634e7929541eC2318f3dCF7e', 6, 'USDC', true),
];

export class Assets {
  readonly #list: Asset[];

  /** @param local the test network of a local host, whose tokens are known too */
  constructor(local: LocalNetworkInfo | undefined, allowed: Asset[] = []) {
    // A local network may bear the number of a real chain: there its tokens are the real ones.
    this.#list = [...KNOWN, ...allowed, ...(local ? localAssets(local) : [])];
  }

  find(chainId: number, token: string): Asset | undefined {
    return this.#list.find((one) => one.chainId === chainId && one.token === token.toLowerCase());
  }
}

/**
 * Parses `--allow-asset <chain id>:<token>:<decimals>`.
 * @throws Failure `usage`
 */
export function parseAllowedAsset(text: string): Asset {
  const match = /^(\d{1,12}):(0x[0-9a-fA-F]{40}):(\d{1,2})$/.exec(text);
  if (!match) {
    throw new Failure(
      'usage',
      `Not understood: --allow-asset ${text}. It takes <chain id>:<token address>:<decimals>.`,
    );
  }
  return asset(Number(match[1]), match[2] ?? '', Number(match[3]), 'token', false);
}

function localAssets({ chainId, token, x402 }: LocalNetworkInfo): Asset[] {
  return [
    asset(chainId, token, 6, 'test pathUSD', true),
    asset(Number(x402.network.split(':')[1]), x402.token, 6, 'test USDC', true),
  ];
}

function asset(chainId: number, token: string, decimals: number, symbol: string, test: boolean): Asset {
  return { chainId, token: token.toLowerCase(), decimals, symbol, test };
}
