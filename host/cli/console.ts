/** `turnpike console`: a link that logs in to the operator's console, once; and new tokens. */
import { Command } from 'commander';
import { callOperator } from './operator-client.ts';
import { type CommandDeps, withSession } from './session.ts';

export function consoleCommand(deps?: CommandDeps): Command {
  return new Command('console')
    .description('operator: print a link that logs in to the console, once within ten minutes')
    .option('--read-only', 'as somebody who may look, and change nothing')
    .option('--new-token', 'make a new token instead: the old one, and sessions opened as that role, end')
    .action(
      withSession(deps, async (session, { readOnly, newToken }: { readOnly?: boolean; newToken?: boolean }) => {
        const role = readOnly ? 'reader' : 'operator';
        const path = newToken ? '/tokens' : '/console-links';
        const answer = JSON.parse((await callOperator(session, 'POST', path, { role })).text) as {
          url?: string;
          token?: string;
        };
        session.printer.result(answer, answer.url ?? answer.token ?? '');
      }),
    );
}
