/** A terminal that keeps what it was told, and answers as the test says. */

import { hostCommands } from '../../host/cli/host-commands.ts';
import { createProgram } from '../../host/cli/program.ts';
import type { CommandDeps } from '../../host/cli/session.ts';
import type { Terminal } from '../../host/cli/terminal/terminal.ts';

export interface FakeTerminal extends Terminal {
  stdout: string;
  stderr: string;
  questions: string[];
}

export function fakeTerminal(options: Partial<Terminal> & { answer?: boolean; input?: string } = {}): FakeTerminal {
  const { answer = false, input = '', ...rest } = options;
  const terminal: FakeTerminal = {
    env: {},
    cwd: '/nowhere',
    home: '/nowhere',
    interactive: false,
    outIsScreen: false,
    signal: new AbortController().signal,
    stdout: '',
    stderr: '',
    questions: [],
    out(text) {
      terminal.stdout += typeof text === 'string' ? text : Buffer.from(text).toString('utf8');
    },
    err(line) {
      terminal.stderr += `${line}\n`;
    },
    async confirm(question) {
      terminal.questions.push(question);
      return answer;
    },
    readInput: async () => input,
    ...rest,
  };
  return terminal;
}

/** Runs the command as a shell would; rejects with what it throws. */
export async function runCommand(args: string[], deps: CommandDeps): Promise<void> {
  await createProgram('0.0.0', deps, hostCommands(deps)).parseAsync(args, { from: 'user' });
}
