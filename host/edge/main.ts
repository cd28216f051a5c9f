/**
 * Entry of an edge process: a child of the supervisor that learns everything over its channel, and ends with it.
 */
import { flushCompileCache } from 'node:module';
import { createServer, Server } from 'node:net';
import { pino } from 'pino';
import { Channel } from '../shared/channel.ts';
import type { ControlForEdge, EdgeInit, EdgeMethods, EdgeTraffic, SeenRequest } from '../shared/contracts.ts';
import { giveMemoryBack } from '../shared/idle-memory.ts';
import { Problem } from '../shared/problem.ts';
import { Edge } from './edge.ts';

type Argument<K extends keyof EdgeMethods> = Parameters<EdgeMethods[K]>[0];

let edge: Edge | undefined;

function ready(): Edge {
  if (!edge) throw new Problem('not_ready', 'The edge has not been told what to serve.');
  return edge;
}

const channel: Channel<ControlForEdge> = new Channel<ControlForEdge>(process, {
  init(init: EdgeInit): Promise<void> {
    if (edge) throw new Problem('conflict', 'This edge was started already.');
    const control = {
      acquire: (slug: { slug: string }) => channel.call('acquire', slug),
      traffic: (traffic: EdgeTraffic[]) => channel.notify('traffic', traffic),
      requests: (requests: SeenRequest[]) => channel.notify('requests', requests),
    };
    edge = new Edge(init, control, pino({ base: { part: 'edge' } }, pino.destination(2)));
    return edge.ready();
  },
  // The supervisor passes a bound handle that it does not accept on itself, which net.Server can listen on.
  listen: ({ kind }: Argument<'listen'>, handle) =>
    ready().listen(kind, handle instanceof Server ? handle : createServer({ noDelay: true }).listen(handle)),
  setRoutes: (routes: Argument<'setRoutes'>) => ready().setRoutes(routes),
  putRoute: (route: Argument<'putRoute'>) => ready().putRoute(route),
  removeRoute: ({ slug }: Argument<'removeRoute'>) => ready().removeRoute(slug),
  setBlockedRanges: ({ ranges }: Argument<'setBlockedRanges'>) => ready().setBlockedRanges(ranges),
  serveUntil: ({ at }: Argument<'serveUntil'>) => ready().serveUntil(at),
  setInstance: (instance: Argument<'setInstance'>) => ready().setInstance(instance),
  retire: (instance: Argument<'retire'>) => ready().retire(instance),
  failed: (instance: Argument<'failed'>) => ready().failed(instance),
  certificateChanged: ({ name }: Argument<'certificateChanged'>) => ready().certificateChanged(name),
  setTlsChallenge: ({ name, pem }: Argument<'setTlsChallenge'>) => ready().setTlsChallenge(name, pem),
  setClock: () => {
    // Nothing here depends on business time: control pushes what changes with it.
  },
  watch: (watched: Argument<'watch'>) => ready().watch(watched),
  metrics: () => ready().metrics(),
  drain: ({ timeoutMs }: Argument<'drain'>) => ready().drain(timeoutMs),
});

process.on('disconnect', () => process.exit(0));
// The supervisor decides when this process ends; a Ctrl-C in its terminal reaches the whole group.
process.on('SIGINT', () => {});
process.on('SIGTERM', () => {});

giveMemoryBack();

// For the next start: all code is loaded by now.
flushCompileCache();
