/**
 * The addresses of a deployment, the better one first. Its subdomain is an origin of its own, so applications that build
 * links from the root work there; but not every host has a wildcard in the DNS, and a certificate for it. That is found
 * out without a request, which would run the handler.
 */
import { lookup } from 'node:dns/promises';
import { connect } from 'node:tls';
import type { Metadata } from './metadata-view.ts';

const PATIENCE_MS = 2_000;

export type Resolve = (name: string) => Promise<string[]>;

/** @returns one or two; the subdomain only where it leads to the same host */
export async function addressesOf(
  { url, subdomainUrl }: Pick<Metadata, 'url' | 'subdomainUrl'>,
  resolve: Resolve = addresses,
): Promise<string[]> {
  if (subdomainUrl === undefined || !URL.canParse(url) || !URL.canParse(subdomainUrl)) return [url];
  return (await leadsTo(new URL(subdomainUrl), new URL(url), resolve)) ? [subdomainUrl, url] : [url];
}

async function leadsTo(from: URL, to: URL, resolve: Resolve): Promise<boolean> {
  const late = new Promise<never>((_, reject) => setTimeout(reject, PATIENCE_MS, new Error('late')).unref());
  try {
    const [found, wanted] = await Promise.race([Promise.all([resolve(from.hostname), resolve(to.hostname)]), late]);
    // Some name servers answer for every name, with an address of their own.
    if (!found.some((address) => wanted.includes(address))) return false;
    return from.protocol !== 'https:' || (await hasCertificate(from));
  } catch {
    return false;
  }
}

async function addresses(name: string): Promise<string[]> {
  return (await lookup(name, { all: true })).map(({ address }) => address);
}

function hasCertificate({ hostname, port }: URL): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect({ host: hostname, servername: hostname, port: Number(port || 443), timeout: PATIENCE_MS });
    const end = (trusted: boolean) => {
      socket.destroy();
      resolve(trusted);
    };
    socket.once('secureConnect', () => end(socket.authorized));
    socket.once('error', () => end(false));
    socket.once('timeout', () => end(false));
  });
}
