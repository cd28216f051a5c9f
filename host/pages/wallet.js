// Pays a 402 with a wallet in the browser (EIP-1193, found by EIP-6963): signs one EIP-3009 transfer, keeps it as a
// cookie of this path, and loads the page again with it. Inlined into the page, whose policy names it by its hash.
(() => {
  const box = document.getElementById('wallet');
  if (!box) return;
  const { required, offer, chain, refused, now } = JSON.parse(box.dataset.pay);
  const { resource } = JSON.parse(new TextDecoder().decode(Uint8Array.from(atob(required), (c) => c.charCodeAt(0))));
  const status = document.getElementById('wallet-status');
  const list = document.getElementById('wallet-list');
  const skew = now - Math.floor(Date.now() / 1000);
  const chainId = Number(offer.network.split(':')[1]);
  const NAME = 'turnpike-payment';
  // A `;` would end the attribute: the folder before it holds the path, too.
  const path = location.pathname.includes(';')
    ? location.pathname.split(';')[0].replace(/[^/]*$/, '')
    : location.pathname;
  const seconds = () => Math.floor(Date.now() / 1000) + skew;
  const say = (text, bad) => {
    status.textContent = text;
    status.className = bad ? 'note bad' : '';
  };
  const amount = (atomic) => {
    const digits = String(atomic).padStart(7, '0');
    return `${digits.slice(0, -6)}.${digits.slice(-6).replace(/0{1,4}$/, '')} ${offer.extra.name}`;
  };
  const keep = (value, maxAge) => {
    const secure = location.protocol === 'https:' ? '; secure' : '';
    // biome-ignore lint/suspicious/noDocumentCookie: the cookie store is for https alone
    document.cookie = `${NAME}=${value}; path=${path}; max-age=${maxAge}; samesite=strict${secure}`;
  };
  const kept = () => {
    const found = document.cookie.split('; ').find((one) => one.startsWith(`${NAME}=`));
    if (!found) return undefined;
    try {
      const value = JSON.parse(atob(found.slice(NAME.length + 1)));
      const good = value.resource.url === resource.url && Number(value.payload.authorization.validBefore) > seconds();
      return good ? value : undefined;
    } catch {
      return undefined;
    }
  };
  const show = () => {
    say('Paid with your signature. The answer is on its way …');
    location.reload();
  };
  if (refused) keep('', 0);

  async function useChain(provider) {
    const wanted = `0x${chainId.toString(16)}`;
    const isThere = async () => Number(await provider.request({ method: 'eth_chainId' })) === chainId;
    if (await isThere()) return;
    say(`Switch your wallet to ${chain.name} …`);
    try {
      await provider.request({ method: 'wallet_switchEthereumChain', params: [{ chainId: wanted }] });
    } catch (error) {
      if (error.code === 4001) throw error;
      const { name: chainName, nativeCurrency, rpcUrl } = chain;
      const params = [{ chainId: wanted, chainName, nativeCurrency, rpcUrls: [rpcUrl] }];
      await provider.request({ method: 'wallet_addEthereumChain', params });
    }
    if (!(await isThere()))
      throw new Error(`Your wallet is on another chain. Switch it to ${chain.name}, then try again.`);
  }

  async function assertFunded(provider, from) {
    const data = `0x70a08231${from.slice(2).toLowerCase().padStart(64, '0')}`;
    const call = { method: 'eth_call', params: [{ to: offer.asset, data }, 'latest'] };
    // A wallet that cannot say is no reason not to try.
    const balance = await provider.request(call).catch(() => undefined);
    if (typeof balance !== 'string' || !/^0x[0-9a-f]{1,64}$/i.test(balance)) return;
    if (BigInt(balance) < BigInt(offer.amount))
      throw new Error(
        `${from} has ${amount(BigInt(balance))}; this costs ${amount(offer.amount)}. Nothing was signed.`,
      );
  }

  async function sign(provider) {
    say('Choose an account in your wallet …');
    const [from] = await provider.request({ method: 'eth_requestAccounts' });
    if (!/^0x[0-9a-f]{40}$/i.test(from ?? '')) throw new Error('Your wallet gave no account.');
    await useChain(provider);
    await assertFunded(provider, from);
    const random = crypto.getRandomValues(new Uint8Array(32));
    const message = {
      from,
      to: offer.payTo,
      value: offer.amount,
      validAfter: '0',
      validBefore: String(seconds() + offer.maxTimeoutSeconds),
      nonce: `0x${Array.from(random, (byte) => byte.toString(16).padStart(2, '0')).join('')}`,
    };
    const field = (text) => ({ name: text.split(' ')[1], type: text.split(' ')[0] });
    const typed = {
      types: {
        EIP712Domain: ['string name', 'string version', 'uint256 chainId', 'address verifyingContract'].map(field),
        TransferWithAuthorization: [
          'address from',
          'address to',
          'uint256 value',
          'uint256 validAfter',
          'uint256 validBefore',
          'bytes32 nonce',
        ].map(field),
      },
      domain: { name: offer.extra.name, version: offer.extra.version, chainId, verifyingContract: offer.asset },
      primaryType: 'TransferWithAuthorization',
      message,
    };
    say(`Confirm in your wallet: ${amount(offer.amount)} to ${offer.payTo}.`);
    const params = [from, JSON.stringify(typed)];
    const signature = await provider.request({ method: 'eth_signTypedData_v4', params });
    const payment = {
      x402Version: 2,
      resource: { url: resource.url },
      accepted: offer,
      payload: { signature, authorization: message },
    };
    keep(btoa(JSON.stringify(payment)), offer.maxTimeoutSeconds);
    if (!kept())
      throw new Error('This browser keeps no cookie for this page, so the payment was not sent. Pay from a terminal.');
  }

  function explain(error) {
    if (error?.code === 4001) return 'You declined in the wallet. Nothing was signed.';
    if (error?.code === -32002) return 'Your wallet has a request open already: answer it there, then try again.';
    return `It did not work: ${error?.message ?? error}`;
  }

  async function pay(provider) {
    for (const button of list.children) button.disabled = true;
    box.setAttribute('aria-busy', 'true');
    try {
      // What was signed already is sent again: it pays once.
      if (!kept()) await sign(provider);
      show();
      return;
    } catch (error) {
      say(explain(error), true);
    }
    box.removeAttribute('aria-busy');
    for (const button of list.children) button.disabled = false;
  }

  const known = new Set();
  function offerWallet(name, provider) {
    if (known.has(provider) || known.size >= 12) return;
    if (known.size === 0 && !refused) say('Nothing moves before you confirm in your wallet.');
    else if (known.size === 0) say('You can try again.');
    known.add(provider);
    const button = document.createElement('button');
    button.type = 'button';
    button.textContent = `Pay ${amount(offer.amount)} with ${name}`;
    button.addEventListener('click', () => pay(provider));
    list.append(button);
  }
  const signed = refused ? undefined : kept();
  if (signed) {
    say('You have paid for this page already.');
    const button = document.createElement('button');
    button.type = 'button';
    button.textContent = 'Show the answer';
    button.addEventListener('click', show);
    list.append(button);
    return;
  }
  addEventListener('eip6963:announceProvider', ({ detail }) => {
    if (typeof detail?.provider?.request === 'function')
      offerWallet(String(detail.info?.name ?? 'your wallet').slice(0, 40), detail.provider);
  });
  dispatchEvent(new Event('eip6963:requestProvider'));
  // Wallets announce themselves within a moment; older ones are where they always were.
  setTimeout(() => {
    if (known.size === 0 && typeof window.ethereum?.request === 'function') offerWallet('your wallet', window.ethereum);
    if (known.size === 0) say('No wallet was found in this browser. Install one, or pay from a terminal.');
  }, 300);
})();
