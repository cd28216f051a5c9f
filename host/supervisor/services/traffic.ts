/** What edges are told of routes and TLS. Their processes start later (edge-processes.ts), when they can be told all. */
import { LiveRequests } from '../../control/live-requests.ts';
import { RoutePublisher } from '../../control/route-publisher.ts';
import { Edges } from '../edges.ts';
import { service } from '../service.ts';
import { openTls } from '../tls.ts';
import { assetStore, clock, logs, publicUrl, stores } from './base.ts';
import { config, folders, log } from './given.ts';

export const edges = service({
  name: 'edges',
  needs: { config, log },
  start: ({ config, log }) => new Edges(config.edge.processes, log),
  // When one of them could not start, too.
  stop: (edges) => edges.stop(0),
});

export const routes = service({
  name: 'routes',
  needs: { config, stores, clock, edges, assetStore },
  start: ({ config, stores: { deployments, domains, registry }, clock, edges, assetStore }) =>
    new RoutePublisher({
      changes: registry.changes,
      deployments,
      domains,
      clock,
      assets: assetStore,
      config: { ...config.runtime, pathPages: config.edge.pathPages },
      edges: () => edges.channels(),
      deploying: config.builtinTenants.enabled,
    }),
});

export const liveRequests = service({
  name: 'live requests',
  needs: { logs, stores, clock, edges, log },
  start: ({ logs, stores: { deployments }, clock, edges, log }) =>
    new LiveRequests({
      logs,
      deployments,
      clock,
      // One that is restarting is told when it is there.
      watch: (slugs) =>
        edges.each('watch', { slugs }).then(
          () => undefined,
          (err) => log.warn({ err }, 'edges were not told'),
        ),
    }),
});

export const tls = service({
  name: 'TLS',
  needs: { config, folders, publicUrl, clock, log, stores, edges, routes },
  start: openTls,
  stop: (tls) => tls.stop(),
});
