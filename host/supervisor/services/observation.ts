/** What the host says of itself: its health, its figures, and what happened in each minute. */
import { History } from '../../observability/history.ts';
import { HistorySampler } from '../../observability/history-sampler.ts';
import { NodeHistory } from '../../observability/node-history.ts';
import { createObservation } from '../observation.ts';
import { service } from '../service.ts';
import { builtinsWaiting, metrics, stores, tally } from './base.ts';
import { egress, storage } from './binding-processes.ts';
import { speechEngine } from './companions.ts';
import { config, folders, log, version } from './given.ts';
import { others, runtime } from './instances.ts';
import { nodes } from './nodes.ts';
import { network, payments } from './payments.ts';
import { crons } from './timed-work.ts';
import { edges } from './traffic.ts';

export const startedAt = service({ name: 'start time', needs: {}, start: () => Date.now() });

export const observation = service({
  name: 'observation',
  needs: {
    config,
    version,
    log,
    startedAt,
    metrics,
    stores,
    network,
    runtime,
    payments,
    crons,
    edges,
    storage,
    egress,
    builtinsWaiting,
    speechEngine,
    nodes,
  },
  start: ({ config, stores, edges, storage, egress, speechEngine, nodes, ...values }) =>
    createObservation({
      ...values,
      nodeFault: stores.cluster && (() => nodes.fault()),
      registry: stores.registry,
      deployments: stores.deployments,
      children: [...edges.children, storage, egress],
      builtins: config.builtinTenants.enabled,
      speechEngine: speechEngine?.engine,
    }),
});

/** What happened in each minute, for charts. */
const history = service({
  name: 'history',
  needs: { folders, tally, log, runtime, edges, storage, egress, stores },
  async start({ folders, tally, log, runtime, edges, storage, egress, stores }) {
    const history = await History.open(folders.history);
    const sampler = new HistorySampler({
      history,
      tally,
      log,
      dataFolder: folders.data,
      processes: () => [
        { group: 'supervisor', pid: process.pid },
        ...edges.children.map(({ pid }) => ({ group: 'edge' as const, pid })),
        { group: 'storage', pid: storage.pid },
        { group: 'egress', pid: egress.pid },
      ],
      edges: () =>
        edges.children.map((child) => ({
          process: child.name,
          read: async () => child.channel().call('metrics', undefined),
        })),
      instances() {
        const running = runtime.list().filter(({ status }) => status.state !== 'cold');
        const memoryBytes = running.reduce((sum, { status }) => sum + (status.memoryBytes ?? 0), 0);
        const instances = running.reduce((sum, { status }) => sum + (status.instances ?? 1), 0);
        return { running: instances, memoryBytes };
      },
      deployments: async () => (await stores.deployments.countByState()).active ?? 0,
    });
    sampler.start();
    return { history, sampler };
  },
  async stop({ history, sampler }) {
    await sampler.stop();
    await history.close();
  },
});

/** Of all nodes. */
export const nodeHistory = service({
  name: 'history of all nodes',
  needs: { history, others },
  start: ({ history, others }) => new NodeHistory({ ...history, others }),
});
