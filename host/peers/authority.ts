/**
 * Certificates by which the nodes of a host know each other: one authority, whose key all nodes share by the registry, and
 * a key of each node's own. Nothing on a public network trusts them.
 */
import { webcrypto, X509Certificate } from 'node:crypto';
import {
  BasicConstraintsExtension,
  ExtendedKeyUsage,
  ExtendedKeyUsageExtension,
  KeyUsageFlags,
  KeyUsagesExtension,
  X509CertificateGenerator,
} from '@peculiar/x509';

/** PEM. */
export interface CertifiedKey {
  certificate: string;
  key: string;
}

/** What is admitted or revoked: one certificate, also where somebody else has the key of the authority. */
export interface PeerIdentity {
  node: number;
  /** SHA-256 of its certificate, as Node writes it. */
  fingerprint: string;
}

const ALGORITHM = { name: 'ECDSA', namedCurve: 'P-256', hash: 'SHA-256' };
const AUTHORITY = 'CN=Turnpike nodes';
const YEARS = 20;
/** Clocks of nodes differ. */
const EARLIER_MS = 86_400_000;

export async function createAuthority(): Promise<CertifiedKey> {
  const keys = await newKeys();
  const certificate = await X509CertificateGenerator.createSelfSigned({
    name: AUTHORITY,
    keys,
    ...validity(),
    signingAlgorithm: ALGORITHM,
    extensions: [
      new BasicConstraintsExtension(true, 0, true),
      new KeyUsagesExtension(KeyUsageFlags.keyCertSign | KeyUsageFlags.cRLSign, true),
    ],
  });
  return { certificate: certificate.toString('pem'), key: await pemOf(keys.privateKey) };
}

export async function certifyNode(authority: CertifiedKey, node: number): Promise<CertifiedKey & PeerIdentity> {
  const keys = await newKeys();
  const certificate = await X509CertificateGenerator.create({
    subject: `CN=${nameOf(node)}`,
    issuer: AUTHORITY,
    publicKey: keys.publicKey,
    signingKey: await privateKeyOf(authority.key),
    ...validity(),
    signingAlgorithm: ALGORITHM,
    extensions: [
      new BasicConstraintsExtension(false, undefined, true),
      new KeyUsagesExtension(KeyUsageFlags.digitalSignature, true),
      new ExtendedKeyUsageExtension([ExtendedKeyUsage.serverAuth, ExtendedKeyUsage.clientAuth]),
    ],
  });
  const pem = certificate.toString('pem');
  return {
    certificate: pem,
    key: await pemOf(keys.privateKey),
    node,
    fingerprint: new X509Certificate(pem).fingerprint256,
  };
}

/** @returns undefined where it is no certificate of a node @param presented as Node's TLS shows it */
export function identityOf(presented: {
  subject?: { CN?: unknown };
  fingerprint256?: string;
}): PeerIdentity | undefined {
  const name = /^node-(\d{1,3})$/.exec(String(presented.subject?.CN));
  const { fingerprint256 } = presented;
  if (!name || fingerprint256 === undefined) return undefined;
  return { node: Number(name[1]), fingerprint: fingerprint256 };
}

function nameOf(node: number): string {
  return `node-${node}`;
}

function validity(): { notBefore: Date; notAfter: Date } {
  const notAfter = new Date();
  notAfter.setFullYear(notAfter.getFullYear() + YEARS);
  return { notBefore: new Date(Date.now() - EARLIER_MS), notAfter };
}

async function newKeys(): Promise<webcrypto.CryptoKeyPair> {
  return await webcrypto.subtle.generateKey(ALGORITHM, true, ['sign', 'verify']);
}

async function pemOf(key: webcrypto.CryptoKey): Promise<string> {
  const der = Buffer.from(await webcrypto.subtle.exportKey('pkcs8', key)).toString('base64');
  return `-----BEGIN PRIVATE KEY-----\n${der.replace(/.{64}/g, '$&\n').trim()}\n-----END PRIVATE KEY-----\n`;
}

async function privateKeyOf(pem: string): Promise<webcrypto.CryptoKey> {
  const der = Buffer.from(pem.replace(/-----[A-Z ]+-----|\s/g, ''), 'base64');
  return await webcrypto.subtle.importKey('pkcs8', der, ALGORITHM, false, ['sign']);
}
