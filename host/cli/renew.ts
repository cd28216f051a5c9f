/** `turnpike renew`: pays for another term, from the later of now and the present expiry. */
import { randomUUID } from 'node:crypto';
import { Command } from 'commander';
import type { Metadata } from './metadata-view.ts';
import { slugOf } from './project/manifest.ts';
import { type CommandDeps, withSession } from './session.ts';

export function renewCommand(deps?: CommandDeps): Command {
  return new Command('renew')
    .description('pay for another term of your deployment')
    .argument('[slug]', 'default: "slug" of turnpike.json')
    .action(
      withSession(deps, async (session, given: string | undefined) => {
        const slug = slugOf(await session.project(), given);
        const path = `/_admin/renew/${encodeURIComponent(slug)}`;
        const { body, paid } = await (await session.host()).pay<Metadata>('POST', path, undefined, randomUUID());
        session.printer.result({ ...body, paid: paid ?? null }, `${slug} runs until ${body.expiresAt}`);
      }),
    );
}
