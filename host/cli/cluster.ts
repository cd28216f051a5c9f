/** `turnpike cluster`: the nodes of a host of several; for its operator. */
import { Command } from 'commander';
import type { Moved } from '../supervisor/moving-in.ts';
import { callOperator } from './operator-client.ts';
import { withDataFolder } from './own-folder.ts';
import { type CommandDeps, type Session, withSession } from './session.ts';
import { table } from './terminal/printer.ts';

interface Node {
  name: string;
  state: string;
  version: string;
  startedAt: string;
  leases: string[];
}

export function clusterCommand(deps?: CommandDeps): Command {
  const command = new Command('cluster').description('operator: the nodes of a host of several');
  command
    .command('status', { isDefault: true })
    .description('list the nodes, and what only one of them does at a time')
    .action(
      withSession(deps, async (session) => {
        const found = JSON.parse((await callOperator(session, 'GET', '/cluster')).text) as {
          name: string | null;
          nodes: Node[];
        };
        const rows = found.nodes.map(({ name, state, version, startedAt, leases }) => [
          name === found.name ? `${name} (this one)` : name,
          state,
          version,
          startedAt,
          leases.join(', '),
        ]);
        session.printer.result(found, table(rows) || 'this host is one node');
      }),
    );
  const act = (verb: string, description: string, done: string) =>
    command
      .command(verb)
      .description(description)
      .argument('<node>', 'as turnpike cluster status names it')
      .action(
        withSession(deps, async (session, node: string) => {
          await callOperator(session, 'POST', `/cluster/${encodeURIComponent(node)}/${verb}`);
          session.printer.result({ node, done: verb }, `${node} ${done}`);
        }),
      );
  act(
    'drain',
    'take a node out of the load balancer: its /healthz answers 503, and it goes on serving',
    'is being drained; stop it once its load balancer sends it nothing',
  );
  act('resume', 'put a drained node back', 'serves again');
  act('remove', 'end a node for good; one of that name does not join again', 'is removed');
  command
    .command('move-in')
    .description('copy the host of this machine, which is stopped, into the empty PostgreSQL of cluster.database')
    .action(
      withSession(deps, async (session) => {
        const moved = await moveHere(session);
        const rows = Object.values(moved.rows).reduce((sum, count) => sum + count, 0);
        const lines = [
          `moved    ${rows} rows of ${Object.keys(moved.rows).length} tables, each compared; ${moved.code} versions of code`,
          `kept     ${moved.registry}`,
          'next     turnpike up, here and on the other nodes',
        ];
        session.printer.result(moved, lines.join('\n'));
      }),
    );
  return command;
}

async function moveHere(session: Session): Promise<Moved> {
  const { moveBoxIn } = await import('../supervisor/moving-in.ts');
  return withDataFolder(session, () => true, moveBoxIn);
}
