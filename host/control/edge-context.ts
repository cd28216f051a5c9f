/**
 * What the edge says about a request it hands to control (header `x-turnpike-context`). Only edges can connect to
 * control's socket and they strip the header from callers, so it is believed.
 */
import { randomUUID } from 'node:crypto';
import type { EdgeContext } from '../shared/contracts.ts';

export const CONTEXT_HEADER = 'x-turnpike-context';

export function parseContext(header: string): EdgeContext {
  return JSON.parse(Buffer.from(header, 'base64url').toString('utf8')) as EdgeContext;
}

/** The context of a request that the host itself makes of a tenant. @param tenantPath path and query below its prefix */
export function ownContext(publicUrl: string, slug: string, tenantPath: string): EdgeContext {
  const { host } = new URL(publicUrl);
  return { requestId: randomUUID(), clientIp: '127.0.0.1', proto: 'http', host, slug, prefix: `/${slug}`, tenantPath };
}

export function readContext(request: Pick<Request, 'headers' | 'url'>): EdgeContext {
  const header = request.headers.get(CONTEXT_HEADER);
  if (header) return parseContext(header);
  const url = new URL(request.url);
  return { requestId: randomUUID(), clientIp: '127.0.0.1', proto: 'http', host: url.host };
}
