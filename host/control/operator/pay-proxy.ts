/**
 * Forwards `/pay/*` of the host's operator API to the pay platform's operator API and adds the platform's key, which the
 * operator need not know. It reaches no other path of that tenant.
 */
import { randomUUID } from 'node:crypto';
import type { Deployments } from '../../registry/deployments.ts';
import type { Secrets } from '../../registry/secrets.ts';
import { Problem } from '../../shared/problem.ts';
import type { ForwardToTenant } from '../tenant-requests.ts';

const SLUG = 'pay';

export interface PayProxyDeps {
  deployments: Pick<Deployments, 'bySlug'>;
  secrets: Pick<Secrets, 'reveal'>;
  forward: ForwardToTenant;
  publicUrl: string;
}

/** @returns what answers `/pay/<path>` of the operator's API with the platform's `/operator/<path>` */
export function payProxy({ deployments, secrets, forward, publicUrl }: PayProxyDeps) {
  return async (request: Request): Promise<Response> => {
    const present = await deployments.bySlug(SLUG);
    if (!present?.builtin || present.state !== 'active') {
      throw new Problem('not_found', 'The pay platform is not deployed here; enable it in builtinTenants.enabled.');
    }
    const { PAY_OPERATOR_KEY: key } = await secrets.reveal(present.tenant);
    if (key === undefined) throw new Problem('not_ready', 'The pay platform is being deployed; try again in a second.');
    const { pathname, search } = new URL(request.url);
    const headers = new Headers(request.headers);
    headers.set('authorization', `Bearer ${key}`);
    const context = {
      requestId: randomUUID(),
      clientIp: '127.0.0.1',
      proto: 'http' as const,
      host: new URL(publicUrl).host,
      slug: SLUG,
      prefix: `/${SLUG}`,
      tenantPath: pathname.replace(/^\/pay/, '/operator') + search,
    };
    return forward(SLUG, new Request(request, { headers }), context, {});
  };
}
