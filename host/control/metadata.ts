/** What everybody may know of a deployment. Neither code nor vars nor secrets nor the names of secrets are ever in it. */

import { bindingLimits } from '../bindings/index.ts';
import { DAY_MS } from '../registry/deployments.ts';
import type { Deployment, Version } from '../registry/schema/deployments.ts';
import type { Config } from '../shared/config.ts';
import { previewLabel } from '../shared/previews.ts';
import { tenantConfig } from '../shared/tenant-limits.ts';
import type { ControlDeps } from './deps.ts';

const EXPIRY_WARNING_MS = 7 * DAY_MS;

export interface RuntimeView {
  state: string;
  lastExit?: { reason: string; detail: string; at: number };
}

export interface MetadataSources {
  config: Config;
  now: number;
  publicUrl: string;
  domains: { domain: string; state: string }[];
  runtime: RuntimeView;
}

export function metadata(deployment: Deployment, sources: MetadataSources) {
  const { now, publicUrl, domains, runtime } = sources;
  const { slug, suspendedAt, suspendedReason } = deployment;
  const config = tenantConfig(sources.config, deployment.limits);
  return {
    slug,
    url: `${publicUrl}/${slug}/`,
    subdomainUrl: subdomainUrl(publicUrl, slug, config.baseDomain),
    state: deployment.state,
    ...(suspendedAt && deployment.state !== 'decommissioned'
      ? { suspended: { since: iso(suspendedAt), reason: suspendedReason } }
      : {}),
    owner: deployment.ownerDid,
    version: deployment.version,
    codeDigest: `sha256:${deployment.digest}`,
    bindings: deployment.bindings,
    crons: deployment.crons,
    domains: domains.map(({ domain, state }) => ({ domain, state })),
    paidRoutes: deployment.paidRoutes,
    payTo: deployment.payTo,
    compatibilityDate: deployment.compatibilityDate,
    compatibilityFlags: deployment.compatibilityFlags,
    createdAt: iso(deployment.createdAt),
    updatedAt: iso(deployment.updatedAt),
    expiresAt: deployment.builtin ? null : iso(deployment.expiresAt),
    ...(deployment.state === 'active' && !deployment.builtin && deployment.expiresAt - now <= EXPIRY_WARNING_MS
      ? { expiresSoon: true }
      : {}),
    ...(deployment.state === 'decommissioned' && deployment.freeAt ? { freeAt: iso(deployment.freeAt) } : {}),
    limits: {
      cpuStallMs: config.runtime.cpuStallMs,
      heapMb: config.runtime.heapMb,
      memoryBytes: config.runtime.memoryBytes,
      requestIdleMs: config.runtime.requestIdleMs,
      maxBodyBytes: config.runtime.maxBodyBytes,
      maxCodeBytes: config.runtime.maxCodeBytes,
      maxSecrets: config.runtime.maxSecrets,
      maxSecretBytes: config.runtime.maxSecretBytes,
      subrequests: config.runtime.subrequests,
      ...bindingLimits(config),
    },
    runtime: {
      state: runtime.state,
      ...(runtime.lastExit ? { lastExit: { ...runtime.lastExit, at: iso(runtime.lastExit.at) } } : {}),
    },
  };
}

/** `http://localhost:8402` and `hello` -> `http://hello.localhost:8402/`. */
export function subdomainUrl(publicUrl: string, slug: string, baseDomain: string): string {
  const url = new URL(publicUrl);
  return `${url.protocol}//${slug}.${baseDomain}${url.port ? `:${url.port}` : ''}/`;
}

/** Where a version answers that is not live. */
export function previewView(
  { config, publicUrl }: Pick<ControlDeps, 'config' | 'publicUrl'>,
  slug: string,
  { preview }: Pick<Version, 'preview'>,
) {
  if (preview === null) return null;
  const label = previewLabel({ id: preview, slug });
  return {
    id: preview,
    url: `${publicUrl}/${label}/`,
    subdomainUrl: subdomainUrl(publicUrl, label, config.baseDomain),
  };
}

export function iso(ms: number): string {
  return new Date(ms).toISOString();
}

/** The metadata of a deployment with what the registry and the runtime know of it now. */
export async function describe(deps: ControlDeps, deployment: Deployment) {
  const status = deps.runtime.status(deployment.slug);
  return metadata(deployment, {
    config: deps.config,
    now: deps.clock.now(),
    publicUrl: deps.publicUrl,
    domains: await deps.domains.ofTenant(deployment.tenant),
    runtime: { state: status.state, ...(status.lastExit ? { lastExit: status.lastExit } : {}) },
  });
}
