/** `turnpike delete`: the owner decommissions a deployment. Its data is removed after the grace period. */
import { Command } from 'commander';
import { type CommandDeps, type Session, withSession } from './session.ts';
import { Failure } from './terminal/failure.ts';

export function deleteCommand(deps?: CommandDeps): Command {
  return new Command('delete')
    .description('decommission your deployment; its data goes after the grace period')
    .argument('<slug>')
    .action(
      withSession(deps, async (session, slug: string) => {
        await confirmDeletion(session, slug);
        const answer = await (await session.host()).own<object | undefined>(
          'DELETE',
          `/_admin/${encodeURIComponent(slug)}`,
        );
        session.printer.result(answer ?? { slug, state: 'decommissioned' }, `${slug} is decommissioned`);
      }),
    );
}

/** @throws Failure `usage` or `cancelled` unless a person, or --yes, agrees */
export async function confirmDeletion({ terminal, options }: Session, slug: string): Promise<void> {
  if (options.yes) return;
  if (!terminal.interactive || options.json) throw new Failure('usage', `To delete ${slug} for good, add --yes.`);
  if (!(await terminal.confirm(`Delete ${slug}? Its URL answers 410 from then on.`)))
    throw new Failure('cancelled', 'Nothing was deleted.');
}
