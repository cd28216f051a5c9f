/**
 * Runs a `turnpike` command in this process: to start Node for it takes ten times what most commands take. The process
 * of its own is in turnpike-command.ts, and what only it has: signals, streams, arguments, the launcher.
 */
import { hostCommands } from '../../../host/cli/host-commands.ts';
import { run } from '../../../host/cli/run.ts';
import { fakeTerminal } from '../../cli/fake-terminal.ts';
import type { CommandOptions, CommandResult } from './turnpike-command.ts';

export async function turnpike(args: string[], options: Omit<CommandOptions, 'smallDisk'>): Promise<CommandResult> {
  const { cwd, env = {}, input, stopWhen } = options;
  const stop = new AbortController();
  const terminal = fakeTerminal({
    env: { PATH: process.env.PATH, HOME: cwd, ...env },
    cwd,
    home: env.HOME ?? cwd,
    signal: stop.signal,
    ...(input === undefined ? {} : { input }),
  });
  const { out } = terminal;
  terminal.out = (text) => {
    out(text);
    if (stopWhen?.(terminal.stdout)) stop.abort();
  };
  const deps = { terminal, fetch };
  const code = await run(args, '0.0.0', deps, hostCommands(deps));
  const { stdout, stderr } = terminal;
  return { code, stdout, stderr, json: () => JSON.parse(stdout) };
}
