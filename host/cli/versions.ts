/** `turnpike versions`: the history of a deployment's code. */
import { Command } from 'commander';
import { slugOf } from './project/manifest.ts';
import { type CommandDeps, withSession } from './session.ts';
import { table } from './terminal/printer.ts';

interface Versions {
  current: number;
  versions: {
    version: number;
    codeDigest: string;
    bytes: number;
    note: string;
    by?: string | null;
    preview?: { id: string } | null;
    createdAt: string;
  }[];
}

export function versionsCommand(deps?: CommandDeps): Command {
  return new Command('versions')
    .description('list the versions of your deployment')
    .argument('[slug]', 'default: "slug" of turnpike.json')
    .action(
      withSession(deps, async (session, given: string | undefined) => {
        const slug = slugOf(await session.project(), given);
        const found = await (await session.host()).own<Versions>('GET', `/_admin/${encodeURIComponent(slug)}/versions`);
        const rows = found.versions.map(({ version, createdAt, bytes, note, by, preview, codeDigest }) => [
          version === found.current ? `* ${version}` : `  ${version}`,
          createdAt,
          `${bytes} bytes`,
          codeDigest.slice(0, 19),
          preview?.id ?? '',
          note ?? '',
          by ?? '',
        ]);
        session.printer.result(found, table(rows));
      }),
    );
}
