/** `turnpike secrets`: sets and removes single secrets; their values are never shown again. */
import { Command } from 'commander';
import { readSecretFlags } from './project/secrets.ts';
import { type CommandDeps, withSession } from './session.ts';
import { Failure } from './terminal/failure.ts';

export function secretsCommand(deps?: CommandDeps): Command {
  const command = new Command('secrets').description('secrets of your deployment: env.NAME in the handler');
  command
    .command('set')
    .description('set secrets: KEY=@file, KEY=env:NAME, KEY=- (stdin), KEY=value')
    .argument('<slug>')
    .argument('<secrets...>')
    .action(
      withSession(deps, async (session, slug: string, given: string[]) => {
        const secretChanges = await readSecretFlags(given, session.terminal);
        await (await session.host()).own('PUT', `/_admin/code/${encodeURIComponent(slug)}`, { secretChanges });
        const names = Object.keys(secretChanges);
        session.printer.result({ slug, set: names }, `set ${names.join(', ')}`);
      }),
    );
  command
    .command('rm')
    .description('remove secrets')
    .argument('<slug>')
    .argument('<names...>')
    .action(
      withSession(deps, async (session, slug: string, names: string[]) => {
        const bad = names.find((name) => !/^[A-Za-z_]\w*$/.test(name));
        if (bad !== undefined)
          throw new Failure('usage', 'secrets rm takes names, without values: turnpike secrets rm NAME.');
        const secretChanges = Object.fromEntries(names.map((name) => [name, null]));
        await (await session.host()).own('PUT', `/_admin/code/${encodeURIComponent(slug)}`, { secretChanges });
        session.printer.result({ slug, removed: names }, `removed ${names.join(', ')}`);
      }),
    );
  return command;
}
