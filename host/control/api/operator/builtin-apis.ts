/**
 * Forwards `/<slug>/*` of the host's operator API to the operator API of a built-in tenant that has one, and adds the
 * tenant's key, which the operator need not know. It reaches no other path of that tenant.
 */
import type { Deployments } from '../../../registry/deployments.ts';
import type { Secrets } from '../../../registry/secrets.ts';
import { Problem } from '../../../shared/problem.ts';
import type { Builtin } from '../../builtins.ts';
import { ownContext } from '../../edge-context.ts';
import type { ForwardToTenant } from '../../tenant-requests.ts';

export interface BuiltinApiDeps {
  deployments: Pick<Deployments, 'bySlug'>;
  secrets: Pick<Secrets, 'reveal'>;
  forward: ForwardToTenant;
  publicUrl: string;
}

/** By slug: what answers `/<slug>/<path>` of the operator's API with the tenant's own. */
export type BuiltinApis = ReadonlyMap<string, (request: Request) => Promise<Response>>;

export function builtinApis(builtins: readonly Builtin[], deps: BuiltinApiDeps): BuiltinApis {
  return new Map(
    builtins.flatMap(({ name, asks: { operatorApi } }) =>
      operatorApi ? [[name, (request: Request) => forwarded(deps, name, operatorApi, request)] as const] : [],
    ),
  );
}

async function forwarded(
  { deployments, secrets, forward, publicUrl }: BuiltinApiDeps,
  slug: string,
  api: NonNullable<Builtin['asks']['operatorApi']>,
  request: Request,
): Promise<Response> {
  const present = await deployments.bySlug(slug);
  if (!present?.builtin || present.state !== 'active') {
    throw new Problem('not_found', `The tenant ${slug} is not deployed here; enable it in builtinTenants.enabled.`);
  }
  const { [api.key]: key } = await secrets.reveal(present.tenant);
  if (key === undefined) throw new Problem('not_ready', `The tenant ${slug} is being deployed; try again in a second.`);
  const { pathname, search } = new URL(request.url);
  const headers = new Headers(request.headers);
  headers.set('authorization', `Bearer ${key}`);
  const context = ownContext(publicUrl, slug, api.path + pathname.slice(slug.length + 1) + search);
  return forward(slug, new Request(request, { headers }), context, {});
}
