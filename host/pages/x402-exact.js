// Pays by x402 `exact` (EIP-3009) with a wallet in the browser (EIP-1193). A module of the owner's console; the page of a
// 402 has its functions inlined (host/pages/payment-page.ts).

export function explained(error) {
  if (error?.code === 4001) return new Error('You declined in the wallet. Nothing was signed.');
  if (error?.code === -32002)
    return new Error('Your wallet has a request open already: answer it there, then try again.');
  if (error instanceof Error) return error;
  return new Error(`The wallet refused: ${String(error?.message ?? error).slice(0, 300)}`);
}

export async function request(provider, method, params) {
  try {
    return await provider.request({ method, ...(params ? { params } : {}) });
  } catch (error) {
    throw explained(error);
  }
}

export async function account(provider) {
  const [address] = await request(provider, 'eth_requestAccounts');
  if (!/^0x[0-9a-f]{40}$/i.test(address ?? '')) throw new Error('Your wallet gave no account.');
  return address;
}

export const idOf = (network) => Number(network.split(':')[1]);

export async function useChain(provider, chain, tell) {
  const id = idOf(chain.network);
  const isThere = async () => Number(await request(provider, 'eth_chainId')) === id;
  if (await isThere()) return;
  const chainId = `0x${id.toString(16)}`;
  tell(`Switch your wallet to ${chain.name} …`);
  try {
    await provider.request({ method: 'wallet_switchEthereumChain', params: [{ chainId }] });
  } catch (error) {
    if (error.code === 4001) throw explained(error);
    const { name: chainName, nativeCurrency, rpcUrl } = chain;
    await request(provider, 'wallet_addEthereumChain', [{ chainId, chainName, nativeCurrency, rpcUrls: [rpcUrl] }]);
  }
  if (!(await isThere()))
    throw new Error(`Your wallet is on another chain. Switch it to ${chain.name}, then try again.`);
}

/** @param atomic of a token with six decimals */
export function amount(atomic, name) {
  const digits = String(atomic).padStart(7, '0');
  return `${digits.slice(0, -6)}.${digits.slice(-6).replace(/0{1,4}$/, '')} ${name}`;
}

export async function assertFunded(provider, from, offer) {
  const data = `0x70a08231${from.slice(2).toLowerCase().padStart(64, '0')}`;
  const call = { method: 'eth_call', params: [{ to: offer.asset, data }, 'latest'] };
  // A wallet that cannot say is no reason not to try.
  const balance = await provider.request(call).catch(() => undefined);
  if (typeof balance !== 'string' || !/^0x[0-9a-f]{1,64}$/i.test(balance)) return;
  if (BigInt(balance) < BigInt(offer.amount))
    throw new Error(
      `${from} has ${amount(BigInt(balance), offer.extra.name)}; this costs ${amount(offer.amount, offer.extra.name)}. Nothing was signed.`,
    );
}

export const typedFields = (...texts) => texts.map((text) => ({ type: text.split(' ')[0], name: text.split(' ')[1] }));

/** @param seconds the host's time @returns the payload of a payment */
export async function signTransfer(provider, from, offer, seconds) {
  const random = crypto.getRandomValues(new Uint8Array(32));
  const authorization = {
    from,
    to: offer.payTo,
    value: offer.amount,
    validAfter: '0',
    validBefore: String(seconds + offer.maxTimeoutSeconds),
    nonce: `0x${[...random].map((byte) => byte.toString(16).padStart(2, '0')).join('')}`,
  };
  const typed = {
    types: {
      EIP712Domain: typedFields('string name', 'string version', 'uint256 chainId', 'address verifyingContract'),
      TransferWithAuthorization: typedFields(
        'address from',
        'address to',
        'uint256 value',
        'uint256 validAfter',
        'uint256 validBefore',
        'bytes32 nonce',
      ),
    },
    domain: {
      name: offer.extra.name,
      version: offer.extra.version,
      chainId: idOf(offer.network),
      verifyingContract: offer.asset,
    },
    primaryType: 'TransferWithAuthorization',
    message: authorization,
  };
  const signature = await request(provider, 'eth_signTypedData_v4', [from, JSON.stringify(typed)]);
  return { signature, authorization };
}
