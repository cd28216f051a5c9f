/**
 * What this service sells and what it gives away: one table, from which the pages, the descriptor and the OpenAPI
 * document are made. Prices are those of the manifest, by which the host charges.
 */
import manifest from '../turnpike.json' with { type: 'json' };
import { type MicroUsd, parseUsd } from './money.ts';

export const SERVICE = 'speech';
export const VERSION = '1.0';

export interface PaidOperation {
  method: string;
  path: string;
  sku: string;
  price: MicroUsd;
  /** As written in the manifest. */
  priceUsd: string;
  metered: boolean;
  pricingVersion: number;
  description: string;
}

export const PAID_ROUTES: readonly PaidOperation[] = manifest.paidRoutes.map((route) => ({
  method: route.method,
  path: route.path,
  sku: route.sku,
  price: parseUsd(route.price),
  priceUsd: route.price,
  metered: route.mode === 'metered',
  pricingVersion: route.pricingVersion,
  description: route.description,
}));

export const FREE_ROUTES = [
  { method: 'GET', path: '/', description: 'Try it: a page with a player' },
  { method: 'GET', path: '/docs', description: 'How to use it, for people' },
  { method: 'GET', path: '/llms.txt', description: 'How to use it, for agents' },
  { method: 'GET', path: '/openapi.json', description: 'OpenAPI 3.1 description' },
  { method: 'GET', path: '/healthz', description: 'Status of the tenant and of each engine' },
  { method: 'GET', path: '/.well-known/paywrap.json', description: 'Prices and payment protocols' },
] as const;

/** @throws Error when the manifest does not sell the path */
export function paidRoute(path: string): PaidOperation {
  const found = PAID_ROUTES.find((route) => route.path === path);
  if (found === undefined) throw new Error(`the manifest has no paid route ${path}`);
  return found;
}
