/**
 * Requests for a tenant that the edge hands over because they touch money or states: paid routes go to the toll,
 * expired tenants ask their owner for a renewal, suspended and decommissioned ones say so.
 */
import type { InstanceSocket } from '../http/instance/fetch.ts';
import { findPaidRoute } from '../payments/paid-routes.ts';
import type { ForwardedRequest, SocketCaller } from '../payments/types.ts';
import type { Deployment } from '../registry/schema/deployments.ts';
import type { EdgeContext } from '../shared/contracts.ts';
import { Problem } from '../shared/problem.ts';
import { renewal } from './api/owner/renew.ts';
import type { ControlDeps } from './deps.ts';
import { iso } from './metadata.ts';
import { noDeployment } from './ownership.ts';
import { describedPath, tenantDescription } from './pages/tenant-openapi.ts';
import { suspension } from './suspension.ts';
import { tollView } from './toll-view.ts';

/** Sends a request to the tenant's instance, streaming both ways. */
export type ForwardToTenant = (
  slug: string,
  request: ForwardedRequest & { signal?: AbortSignal },
  context: EdgeContext,
  headers: Record<string, string>,
  /** Gives the handler up; default: the request's own. */
  signal?: AbortSignal,
) => Promise<Response>;

/** As `ForwardToTenant`, for a WebSocket handshake. */
export type OpenTenantSocket = (
  slug: string,
  request: ForwardedRequest,
  context: EdgeContext,
  headers: Record<string, string>,
  signal: AbortSignal,
) => Promise<InstanceSocket | Response>;

/** What the toll answered; where it is a 402 for a browser, it may be in the tenant's own design. */
export type Dressed = (
  request: Request,
  context: EdgeContext,
  deployment: Deployment,
  answer: Response,
) => Promise<Response>;

export async function tenantRequest(
  deps: ControlDeps,
  forward: ForwardToTenant,
  dressed: Dressed,
  request: Request,
  context: EdgeContext,
  slug: string,
): Promise<Response> {
  const deployment = await deps.deployments.lookUp(slug);
  if (!deployment) throw noDeployment(slug);
  const suspended = suspension(deployment);
  if (suspended) throw suspended;
  switch (deployment.state) {
    case 'decommissioned':
      throw new Problem('gone', `${slug} was decommissioned on ${iso(deployment.decommissionedAt ?? 0)}.`);
    case 'expired':
      return await renewAndForward(deps, forward, dressed, request, context, deployment);
    case 'active': {
      const described = describedPath(request, context);
      if (described) return await description(deps, forward, request, context, deployment, described);
      return await dressed(
        request,
        context,
        deployment,
        await deps.payments.toll(request, context, tollView(deployment)),
      );
    }
  }
}

/**
 * A WebSocket handshake that an edge hands over.
 * @param ordinary answers it as a request without an upgrade, where no socket is for sale
 * @returns what the caller is told; undefined when a socket was opened, and has ended
 */
export async function tenantSocket(
  deps: ControlDeps,
  request: Request,
  context: EdgeContext,
  slug: string,
  caller: SocketCaller,
  ordinary: () => Promise<Response>,
): Promise<Response | undefined> {
  const deployment = await deps.deployments.lookUp(slug);
  if (deployment?.state !== 'active' || suspension(deployment)) return await ordinary();
  const view = tollView(deployment);
  if (!findPaidRoute(view.paidRoutes, request.method, context.tenantPath ?? '/')) return await ordinary();
  return await deps.payments.tollSocket(request, context, view, caller);
}

/** The handler's own description where it has one, else the generated one. */
async function description(
  deps: ControlDeps,
  forward: ForwardToTenant,
  request: Request,
  context: EdgeContext,
  deployment: Deployment,
  path: string,
): Promise<Response> {
  // Where the path itself has a price, the handler's answer may be what is sold.
  if (!findPaidRoute(tollView(deployment).paidRoutes, request.method, path)) {
    const own = await forward(deployment.slug, request, context, {});
    if (!isNoDescription(own)) return own;
    await own.body?.cancel();
  }
  const base = context.via === 'path' ? `${deps.publicUrl}${context.prefix}` : `${context.proto}://${context.host}`;
  return new Response(JSON.stringify(tenantDescription(path, deployment, deps.payments, base), null, 2), {
    headers: { 'content-type': 'application/json; charset=utf-8', 'access-control-allow-origin': '*' },
  });
}

/** A handler that answers every path with a greeting has no description of its own. */
function isNoDescription({ status, ok, headers }: Response): boolean {
  return status === 404 || (ok && !/json|yaml/i.test(headers.get('content-type') ?? ''));
}

/**
 * The owner pays the 402 of the tenant's own URL; then the request goes on as it would without that payment: to the
 * toll, where the path has a price, and to another 402, where the payment was for an earlier renewal.
 */
async function renewAndForward(
  deps: ControlDeps,
  forward: ForwardToTenant,
  dressed: Dressed,
  request: Request,
  context: EdgeContext,
  deployment: Deployment,
): Promise<Response> {
  const answer = await deps.payments.paidOperation(
    // The payment does not depend on the body, which belongs to the tenant and is forwarded below.
    new Request(request.url, { method: request.method, headers: request.headers }),
    context,
    {
      ...renewal(deps, deployment),
      description: `${deployment.slug} has expired. Its owner can renew it here for ${deps.config.slugs.termDays} days`,
      body: new Uint8Array(),
    },
  );
  if (answer.status !== 200) return answer;
  const { headers: fields, withoutCredentials } = deps.payments;
  const response = await tenantRequest(deps, forward, dressed, withoutCredentials(request), context, deployment.slug);
  const headers = new Headers(response.headers);
  // What tells the payer what was paid stays, when a renewal's answer gives way to the tenant's.
  for (const name of fields.exposed.split(', ')) {
    const value = answer.headers.get(name);
    if (value) headers.set(name, value);
  }
  return new Response(response.body, { status: response.status, statusText: response.statusText, headers });
}
