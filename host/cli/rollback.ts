/** `turnpike rollback` and `promote`: another version serves from now on; secrets, settings and data stay. */
import { Command, InvalidArgumentError } from 'commander';
import { type Metadata, metadataText } from './metadata-view.ts';
import { type CommandDeps, withSession } from './session.ts';

export function rollbackCommand(deps?: CommandDeps): Command {
  return makeLive('rollback', 'go back to an older version', deps);
}

export function promoteCommand(deps?: CommandDeps): Command {
  return makeLive('promote', 'make a preview live', deps);
}

function makeLive(name: string, description: string, deps?: CommandDeps): Command {
  return new Command(name)
    .description(description)
    .argument('<slug>')
    .argument('<version>', 'number of the version; see turnpike versions', (text) => {
      if (!/^[1-9]\d{0,8}$/.test(text)) throw new InvalidArgumentError('It takes the number of a version.');
      return Number(text);
    })
    .action(
      withSession(deps, async (session, slug: string, version: number) => {
        const path = `/_admin/${encodeURIComponent(slug)}/rollback`;
        const metadata = await (await session.host()).own<Metadata>('POST', path, { version });
        session.printer.result(metadata, metadataText(metadata));
      }),
    );
}
