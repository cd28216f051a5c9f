/** `turnpike session`: a token of a deployment, for its console or a series of calls. */
import { Command } from 'commander';
import { slugOf } from './project/manifest.ts';
import { type CommandDeps, withSession } from './session.ts';

export function sessionCommand(deps?: CommandDeps): Command {
  return new Command('session')
    .description('print a token that stands for you, for your deployment alone and 15 minutes; the console takes it')
    .argument('[slug]', 'default: "slug" of turnpike.json')
    .action(
      withSession(deps, async (session, given: string | undefined) => {
        const slug = slugOf(await session.project(), given);
        const host = await session.host();
        const found = await host.own<{ token: string; expiresAt: string }>(
          'POST',
          `/_admin/session/${encodeURIComponent(slug)}`,
        );
        session.printer.progress(`good until ${found.expiresAt}, at ${host.origin}/_admin/console`);
        session.printer.result(found, found.token);
      }),
    );
}
