/**
 * Signing in by a wallet: a message as EIP-4361 has it, which names this host, what it is for, and a nonce. Wallets warn
 * where the page that asks is not of the host that the message names.
 *
 * A nonce carries its end and is signed by the host, so that those who ask for one and never come back cost nothing, and
 * any node can take what another gave; a used one is in the registry.
 */
import { createHmac, randomBytes, timingSafeEqual } from 'node:crypto';
import { getAddress, isHex, recoverMessageAddress } from 'viem';
import type { PaymentKeys } from '../registry/payments/keys.ts';
import { Problem } from '../shared/problem.ts';
import { payerDid } from './terms.ts';
import type { Payer, SignIns } from './types.ts';

const LIFE_MS = 5 * 60_000;
const ADDRESS = /^0x[0-9a-fA-F]{40}$/;
const NONCE = /^([0-9a-f]{12})([0-9a-f]{24})([0-9a-f]{32})$/;
const SIGNATURE_DIGITS = 130;

export interface SignInOptions {
  /** The same at all nodes. */
  key: Buffer;
  /** Remembers which nonces were used. */
  keys: Pick<PaymentKeys, 'claim'>;
  /** Address of the owner's console. */
  consoleUrl: string;
  chainId: number;
  /** ms since the epoch that only grow; tests pass their own. */
  now?: () => number;
}

export interface SignInMessage {
  /** With the port, where it has one. */
  host: string;
  /** As the wallet writes it. */
  address: string;
  statement: string;
  uri: string;
  chainId: number;
  nonce: string;
  /** ms since the epoch. */
  issuedAt: number;
  expiresAt: number;
  requestId?: string | undefined;
  resources?: readonly string[];
}

/** What the wallet signs (EIP-4361). */
export function signInMessage({ host, address, statement, uri, chainId, nonce, ...rest }: SignInMessage): string {
  return [
    `${host} wants you to sign in with your Ethereum account:`,
    address,
    '',
    statement,
    '',
    `URI: ${uri}`,
    'Version: 1',
    `Chain ID: ${chainId}`,
    `Nonce: ${nonce}`,
    `Issued At: ${new Date(rest.issuedAt).toISOString()}`,
    `Expiration Time: ${new Date(rest.expiresAt).toISOString()}`,
    ...(rest.requestId === undefined ? [] : [`Request ID: ${rest.requestId}`]),
    ...(rest.resources ? ['Resources:', ...rest.resources.map((resource) => `- ${resource}`)] : []),
  ].join('\n');
}

export function createSignIns({ key, keys, consoleUrl, chainId, now = steadyNow() }: SignInOptions): SignIns {
  const { host } = new URL(consoleUrl);

  const mac = (address: string, issued: string, random: string) =>
    createHmac('sha256', key).update(`${address}\n${issued}\n${random}`).digest().subarray(0, 16);

  const messageOf = (address: string, nonce: string, issuedAt: number) =>
    signInMessage({
      host,
      address: getAddress(address),
      statement: `Sign in to the owner's console at ${consoleUrl} for an hour. Sign this on that page only: whoever has it can change your deployments. It moves no money.`,
      uri: consoleUrl,
      chainId,
      nonce,
      issuedAt,
      expiresAt: issuedAt + LIFE_MS,
    });

  return {
    async begin(given) {
      const address = addressOf(given);
      const issuedAt = Math.floor(now());
      const issued = issuedAt.toString(16).padStart(12, '0');
      const random = randomBytes(12).toString('hex');
      const nonce = `${issued}${random}${mac(address, issued, random).toString('hex')}`;
      return { nonce, message: messageOf(address, nonce, issuedAt), expiresAt: issuedAt + LIFE_MS };
    },

    async finish({ address: given, nonce, signature }) {
      const address = addressOf(given);
      const [, issued = '', random = '', proof = ''] = NONCE.exec(nonce) ?? [];
      if (proof === '' || !timingSafeEqual(Buffer.from(proof, 'hex'), mac(address, issued, random)))
        throw refused('This host gave no such nonce to this wallet');
      const issuedAt = Number.parseInt(issued, 16);
      if (now() >= issuedAt + LIFE_MS) throw refused('The message has expired');
      if (!isHex(signature) || signature.length !== 2 + SIGNATURE_DIGITS)
        throw refused('That is no signature of a plain wallet');
      const message = messageOf(address, nonce, issuedAt);
      const signer = await recoverMessageAddress({ message, signature }).catch(() => undefined);
      if (signer?.toLowerCase() !== address) throw refused('Another wallet signed, or another message');
      // Of two at once the second is refused.
      if (!(await keys.claim(`sign-in:${random}`, issuedAt + LIFE_MS))) throw refused('The message was used already');
      return { address: address as Payer['address'], did: payerDid(chainId, address) };
    },
  };
}

/** @throws Problem invalid_field */
function addressOf(given: string): string {
  if (!ADDRESS.test(given)) throw new Problem('invalid_field', 'address takes 0x and 40 hexadecimal digits.');
  return given.toLowerCase();
}

function refused(why: string): Problem {
  return new Problem('unauthorized', `${why}. Ask for a new message at POST /_admin/sign-in, and sign that.`);
}

/** The system's clock as it is now, going on evenly however it is set later. */
function steadyNow(): () => number {
  const offset = Date.now() - performance.now();
  return () => offset + performance.now();
}
