/** `turnpike cluster`: the nodes of a host of several; for its operator. */
import { resolve } from 'node:path';
import { Command } from 'commander';
import { fileSize } from '../shared/file-size.ts';
import type { Moved } from '../supervisor/moving.ts';
import { callOperator } from './operator-client.ts';
import { ownConfig, withDataFolder, withNewDataFolder } from './own-folder.ts';
import { type CommandDeps, withSession } from './session.ts';
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
    .description('copy the host of this machine, which is stopped, with its data into the empty cluster.database')
    .action(
      withSession(deps, async (session) => {
        const { moveBoxIn } = await import('../supervisor/moving-in.ts');
        const moved = await withDataFolder(session, (config, folder) =>
          moveBoxIn(config, folder, (line) => session.printer.progress(line)),
        );
        session.printer.result(moved, said(moved, 'kept', 'turnpike up, here and on the other nodes'));
      }),
    );
  command
    .command('move-out')
    .description(
      'copy the host of cluster.database, whose nodes are stopped, into a new data folder (--data) of one box',
    )
    .option('--give-up', 'end a move that was begun and not finished: the nodes may start again')
    .action(
      withSession(deps, async (session, options: { giveUp?: boolean }) => {
        const { giveUpMoveOut, moveClusterOut } = await import('../supervisor/moving-out.ts');
        if (options.giveUp) {
          await giveUpMoveOut(await ownConfig(session));
          session.printer.result({ done: 'give-up' }, 'the nodes may start again');
          return;
        }
        const moved = await withNewDataFolder(session, (config, folder) =>
          moveClusterOut(config, folder, (line) => session.printer.progress(line)),
        );
        session.printer.result(
          moved,
          said(moved, 'made', 'turnpike up --data <folder>, without the settings of cluster'),
        );
      }),
    );
  command
    .command('restored')
    .description(
      'go on with a cluster.database that came back from a backup; the one that it is a copy of is gone for good',
    )
    .action(
      withSession(deps, async (session) => {
        const { takeRestoredCluster } = await import('../supervisor/restored.ts');
        await takeRestoredCluster(await ownConfig(session));
        session.printer.result(
          { done: 'restored' },
          'payouts   wait until the chain was asked what was sent since the backup\nnext      turnpike up on each node, then: turnpike payments, and: turnpike payments reconcile',
        );
      }),
    );
  command
    .command('rotate-key')
    .description(
      'seal the keys that the nodes share with a new cluster.key; start the nodes with it, one after the other',
    )
    .requiredOption('--new-key-file <file>', 'the new key: openssl rand -base64 32 > <file>')
    .action(
      withSession(deps, async (session, { newKeyFile }: { newKeyFile: string }) => {
        const { rotateClusterKey } = await import('../supervisor/cluster-key.ts');
        const file = resolve(session.terminal.cwd, newKeyFile);
        const keys = await rotateClusterKey(await ownConfig(session), file);
        const text = keys > 0 ? `sealed   ${keys} keys anew` : 'the keys are sealed with this key already';
        session.printer.result({ keys }, `${text}\nnext     set cluster.key to it on each node, and start them again`);
      }),
    );
  return command;
}

function said(
  { rows, code, stores, objects, databases, assets, certificates, registry }: Moved & { registry: string },
  verb: string,
  next: string,
): string {
  const sum = Object.values(rows).reduce((all, count) => all + count, 0);
  return [
    `moved    ${sum} rows of ${Object.keys(rows).length} tables, each compared; ${code} versions of code`,
    `stores   ${stores.stores} of KV and R2, ${stores.rows} rows, ${fileSize(stores.bytes)}, read back and compared`,
    ...(objects.objects > 0
      ? [`objects  ${objects.objects}, ${objects.alarms} alarms, ${fileSize(objects.bytes)}, read back`]
      : []),
    ...(databases.databases > 0
      ? [`d1       ${databases.databases} databases, ${databases.rows} rows, ${fileSize(databases.bytes)}, compared`]
      : []),
    `files    ${assets.files} static files, ${fileSize(assets.bytes)}, compared with their digests`,
    ...(certificates > 0 ? [`tls      ${certificates} certificates by ACME, read back and compared`] : []),
    `${verb.padEnd(9)}${registry}`,
    `next     ${next}`,
  ].join('\n');
}
