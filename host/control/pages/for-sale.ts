/**
 * GET /.well-known/x402: the addresses at which something is sold, as x402's indexers read them (x402scan,
 * docs/DISCOVERY.md). The host's names everything that is sold here; a tenant's own names what it sells.
 */
import type { PaidRoute } from '../../payments/types.ts';
import type { Deployments } from '../../registry/deployments.ts';
import type { Builtin } from '../builtins.ts';
import type { Endpoint } from '../endpoint.ts';
import { tollView } from '../toll-view.ts';
import { type Page, textPage } from './page.ts';

export const FOR_SALE_PATH = '/.well-known/x402';

/** Selling deployments that the host's document looks through. */
const MOST_DEPLOYMENTS = 1_000;
/** The document is asked for without a payment: it is made at most this often, ms. */
const KEPT_MS = 60_000;
/** Instead of a part of a path that a caller chooses. */
const PLACEHOLDER = 'hello';

export interface ForSale {
  version: 1;
  resources: string[];
  instructions?: string;
}

/** @param base URL without a trailing slash */
export function forSale(routes: readonly Pick<PaidRoute, 'path'>[], base: string): ForSale {
  const paths = routes.map(({ path }) => (path.endsWith('*') ? `${path.slice(0, -1)}${PLACEHOLDER}` : path));
  return { version: 1, resources: [...new Set(paths)].map((path) => `${base}${path}`) };
}

export function forSalePage({
  endpoints,
  deployments,
  builtins,
  publicUrl,
}: {
  endpoints: readonly Endpoint[];
  deployments: Pick<Deployments, 'selling' | 'builtin'>;
  builtins: readonly Builtin[];
  publicUrl: string;
}): Page {
  let made: { at: number; text: string } | undefined;
  return {
    path: FOR_SALE_PATH,
    render: async () => {
      if (!made || performance.now() - made.at > KEPT_MS) {
        const on = await deployments.builtin();
        const sellers = await deployments.selling(MOST_DEPLOYMENTS);
        const own = endpoints
          .filter(({ access }) => access === 'paid')
          .map(({ path }) => ({ path: path.replace(/:\w+/g, PLACEHOLDER) }));
        const resources = [
          ...forSale(own, publicUrl).resources,
          ...builtins
            .filter(({ name }) => on.includes(name))
            .flatMap(({ asks }) => asks.sells.map((path) => `${publicUrl}${path}`)),
          ...sellers.flatMap((seller) => {
            const routes = tollView(seller).paidRoutes.filter(({ listed }) => listed !== false);
            return forSale(routes, `${publicUrl}/${seller.slug}`).resources;
          }),
        ];
        const instructions = `${publicUrl}/llms.txt`;
        made = { at: performance.now(), text: JSON.stringify({ version: 1, resources, instructions }, null, 2) };
      }
      return textPage(made.text, 'application/json');
    },
  };
}
