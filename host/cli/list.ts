/** `turnpike list`: the deployments of your wallet. */
import { Command } from 'commander';
import { type Metadata, stateText } from './metadata-view.ts';
import { type CommandDeps, withSession } from './session.ts';
import { table } from './terminal/printer.ts';

export function listCommand(deps?: CommandDeps): Command {
  return new Command('list').description('list the deployments of your wallet').action(
    withSession(deps, async (session) => {
      const found = await (await session.host()).own<{ deployments: Metadata[] }>('GET', '/_admin/deployments');
      const rows = found.deployments.map(({ slug, version, expiresAt, url, ...one }) => [
        slug,
        stateText(one),
        `version ${version}`,
        expiresAt === null ? 'never expires' : `until ${expiresAt.slice(0, 10)}`,
        url,
      ]);
      session.printer.result(found, table(rows) || 'none');
    }),
  );
}
