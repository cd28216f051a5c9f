/**
 * GET /.well-known/paywrap.json: what is sold, in which way, and what is free.
 */
import { FREE_ROUTES, PAID_ROUTES, SERVICE, VERSION } from '../catalogue.ts';
import type { Settings } from '../settings.ts';

export function descriptor(settings: Settings): object {
  const protocols = [...new Set(settings.offers.map(({ method }) => (method === 'x402' ? 'x402' : 'mpp')))];
  return {
    service: SERVICE,
    version: VERSION,
    wallet: settings.wallet ?? null,
    network: settings.network ?? null,
    paidRoutes: PAID_ROUTES.flatMap(({ method, path, sku, price, pricingVersion, description }) =>
      protocols.map((protocol) => ({
        method,
        path,
        protocol,
        sku,
        priceUsdcMicro: price,
        pricingVersion,
        description,
      })),
    ),
    freeRoutes: FREE_ROUTES.map(({ method, path }) => ({ method, path })),
  };
}
