/** `turnpike get`: what everybody may know of a deployment. */
import { Command } from 'commander';
import { addressesOf } from './addresses.ts';
import { type Metadata, metadataText } from './metadata-view.ts';
import { slugOf } from './project/manifest.ts';
import { type CommandDeps, withSession } from './session.ts';

export function getCommand(deps?: CommandDeps): Command {
  return new Command('get')
    .description('show a deployment: state, expiry, owner, prices')
    .argument('[slug]', 'default: "slug" of turnpike.json')
    .action(
      withSession(deps, async (session, given: string | undefined) => {
        const slug = slugOf(await session.project(), given);
        const metadata = await (await session.host()).get<Metadata>(`/_admin/get/${encodeURIComponent(slug)}`);
        session.printer.result(metadata, metadataText(metadata, await addressesOf(metadata)));
      }),
    );
}
