/** `turnpike list`: the deployments of your wallet, or what they sell as an indexer sees it. */
import { Command } from 'commander';
import { showForSale } from './for-sale.ts';
import { type Metadata, stateText } from './metadata-view.ts';
import { type CommandDeps, type Session, withSession } from './session.ts';
import { table } from './terminal/printer.ts';

export function listCommand(deps?: CommandDeps): Command {
  return new Command('list')
    .description('list the deployments of your wallet')
    .option('--for-sale', 'list what they sell as indexers see it, and whether they would take it')
    .action(withSession(deps, list));
}

async function list(session: Session, { forSale }: { forSale?: boolean }): Promise<void> {
  const host = await session.host();
  const found = await host.own<{ deployments: Metadata[] }>('GET', '/_admin/deployments');
  if (forSale) return showForSale(session, host, found.deployments);
  const rows = found.deployments.map(({ slug, version, expiresAt, url, ...one }) => [
    slug,
    stateText(one),
    `version ${version}`,
    expiresAt === null ? 'never expires' : `until ${expiresAt.slice(0, 10)}`,
    url,
  ]);
  session.printer.result(found, table(rows) || 'none');
}
