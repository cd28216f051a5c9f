// Pays a 402 with a wallet in the browser (EIP-1193, found by EIP-6963): signs one payment, keeps it as a cookie of this
// path, and loads the page again with it. Inlined into the page behind the functions of x402-exact.js; the page's policy
// names them by their hash. `WALLET_ROOT` is the tree that has the wallet's card: the document, or in a page of a tenant's
// own design a shadow tree that the host made.
(() => {
  const root = WALLET_ROOT;
  const box = root?.getElementById('wallet');
  if (!box) return;
  const { required, offer, isMost, chain, refused, now } = JSON.parse(box.dataset.pay);
  const { resource } = JSON.parse(new TextDecoder().decode(Uint8Array.from(atob(required), (c) => c.charCodeAt(0))));
  const status = root.getElementById('wallet-status');
  const list = root.getElementById('wallet-list');
  const skew = now - Math.floor(Date.now() / 1000);
  const price = `${isMost ? 'at most ' : ''}${amount(offer.amount, offer.extra.name)}`;
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
      const until = Number(value.payload.authorization.validBefore);
      const good = value.resource.url === resource.url && until > seconds();
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

  async function sign(provider) {
    say('Choose an account in your wallet …');
    const from = await account(provider);
    await useChain(provider, chain, say);
    await assertFunded(provider, from, offer);
    say(`Confirm in your wallet: ${price} to ${offer.payTo}.`);
    const payload = await signTransfer(provider, from, offer, seconds());
    const payment = { x402Version: 2, resource: { url: resource.url }, accepted: offer, payload };
    keep(btoa(JSON.stringify(payment)), offer.maxTimeoutSeconds);
    if (!kept())
      throw new Error('This browser keeps no cookie for this page, so the payment was not sent. Pay from a terminal.');
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
      say(explained(error).message, true);
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
    button.textContent = `Pay ${price} with ${name}`;
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
