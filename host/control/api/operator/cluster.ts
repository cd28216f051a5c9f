/** The nodes of a host of several: which there are, what they do, and taking one out. */
import { Problem } from '../../../shared/problem.ts';
import { json } from '../../endpoint.ts';
import { iso } from '../../metadata.ts';
import type { OperatorCall, OperatorDeps, OperatorEndpoint } from './endpoint.ts';

export function clusterEndpoints({ cluster }: OperatorDeps): OperatorEndpoint[] {
  return [
    {
      method: 'GET',
      path: '/cluster',
      access: 'operator',
      summary: 'The nodes of this host',
      description: 'Where there is one node alone, `nodes` is empty and `name` is null.',
      responses: { 200: '`{name, nodes: [{name, state, version, startedAt, leases}]}`' },
      async handle() {
        if (!cluster) return json({ name: null, nodes: [] });
        const nodes = (await cluster.nodes.list()).map((one) => ({ ...one, startedAt: iso(one.startedAt) }));
        return json({ name: cluster.name, nodes });
      },
    },
    act(
      'drain',
      'Empty a node',
      'Its /healthz answers 503 from now on, its leases go to other nodes, and it goes on serving: stop it once the load balancer sends it nothing.',
      (nodes, name) => nodes.drain(name, true),
    ),
    act('resume', 'Let a drained node serve again', 'Its /healthz answers 200 again.', (nodes, name) =>
      nodes.drain(name, false),
    ),
    {
      ...act(
        'remove',
        'Remove a node for good',
        'It ends, and what it writes under a lease fails. A node of that name does not join again.',
        (nodes, name) => nodes.remove(name),
      ),
      asksAgain: () => true,
    },
  ];

  function act(
    verb: string,
    summary: string,
    description: string,
    work: (nodes: NonNullable<OperatorDeps['cluster']>['nodes'], name: string) => Promise<void>,
  ): OperatorEndpoint {
    return {
      method: 'POST',
      path: `/cluster/:node/${verb}`,
      access: 'operator',
      summary,
      description,
      responses: { 200: '`{node}`', 404: 'There is no such node.', 409: 'This host is one node.' },
      async handle({ params: { node = '' } }: OperatorCall) {
        if (!cluster) throw new Problem('conflict', 'This host is one node: cluster.database is not set.');
        await work(cluster.nodes, node);
        return json({ node });
      },
    };
  }
}
