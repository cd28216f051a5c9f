/** What the host tells of a deployment, as far as the command reads it, and how a person sees it. */
import { table } from './terminal/printer.ts';

export interface Metadata {
  slug: string;
  url: string;
  subdomainUrl?: string;
  state: string;
  /** By the operator. */
  suspended?: { since: string; reason: string };
  owner: string;
  version: number;
  expiresAt: string | null;
  expiresSoon?: boolean;
  /** By key: whether there is one, or several by their names in env. */
  bindings: Record<string, boolean | Record<string, { id?: string }>>;
  crons: string[];
  domains: { domain: string; state: string }[];
  paidRoutes: { method: string; path: string; tool?: string; price: string; mode: string }[];
  runtime: { state: string; lastExit?: { reason: string; detail: string; at: string } };
}

/** One word, or two. */
export function stateText({ state, suspended }: { state: string; suspended?: object | null }): string {
  if (!suspended || state === 'decommissioned') return state;
  return state === 'active' ? 'suspended' : `suspended, ${state}`;
}

/** @param addresses the best one first */
export function metadataText(one: Metadata, addresses: readonly string[] = []): string {
  const known = [...addresses, one.url, ...(one.subdomainUrl ? [one.subdomainUrl] : [])];
  const bindings = Object.entries(one.bindings)
    .filter(([, asked]) => asked)
    .map(([key, asked]) => (typeof asked === 'object' ? `${key} (${Object.keys(asked).join(' ')})` : key));
  const rows: (string | number)[][] = [
    ['slug', one.slug],
    ...[...new Set(known)].map((url, index) => [index === 0 ? 'url' : '', url]),
    ['state', `${stateText(one)}${one.expiresSoon ? ', expires soon' : ''}`],
    ...(one.suspended ? [['', `by the operator, since ${one.suspended.since}: ${one.suspended.reason}`]] : []),
    ...(one.state === 'expired' && !one.suspended
      ? [['', `it answers 402 until it is renewed: turnpike renew ${one.slug}`]]
      : []),
    ['expires', one.expiresAt ?? 'never'],
    ['version', one.version],
    ['owner', one.owner],
    ...(bindings.length > 0 ? [['bindings', bindings.join(' ')]] : []),
    ...one.crons.map((cron, index) => [index === 0 ? 'crons' : '', cron]),
    ...one.domains.map(({ domain, state }, index) => [index === 0 ? 'domains' : '', `${domain} (${state})`]),
    ...one.paidRoutes.map(({ method, path, tool, price, mode }, index) => [
      index === 0 ? 'prices' : '',
      `${method} ${path}${tool === undefined ? '' : `, tool ${tool}`}  ${mode === 'metered' ? 'at most ' : ''}${price} USD`,
    ]),
    ['runtime', one.runtime.state],
    ...(one.runtime.lastExit ? [['', `last ended: ${one.runtime.lastExit.reason}, ${one.runtime.lastExit.at}`]] : []),
  ];
  return table(rows);
}
