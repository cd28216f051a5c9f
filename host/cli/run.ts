/** Runs the command once: parses, works, and turns whatever happens into output and an exit code. */
import { type Command, CommanderError } from 'commander';
import { exitCode } from './exit-codes.ts';
import { createProgram } from './program.ts';
import type { CommandDeps } from './session.ts';
import { asFailure, failureDocument, failureText } from './terminal/failure.ts';

/**
 * @param args without the program's name
 * @param version of the package
 * @returns the exit code
 */
export async function run(args: string[], version: string, deps: CommandDeps): Promise<number> {
  const { terminal } = deps;
  const program = createProgram(version, deps);
  for (const command of everyCommand(program)) {
    command.exitOverride().configureOutput({
      writeOut: (text) => terminal.out(text),
      writeErr: (text) => terminal.err(text.replace(/\n$/, '')),
    });
  }
  try {
    await program.parseAsync(args, { from: 'user' });
    return exitCode('ok');
  } catch (error) {
    // Help and version end this way too, with code 0; everything else that commander throws is a matter of usage.
    if (error instanceof CommanderError) return error.exitCode === 0 ? exitCode('ok') : exitCode('usage');
    const failure = asFailure(error);
    if (!args.includes('--json')) terminal.err(failureText(failure));
    else if (!failure.reported) terminal.out(`${JSON.stringify(failureDocument(failure), null, 2)}\n`);
    return exitCode(failure.exit);
  }
}

function everyCommand(program: Command): Command[] {
  return [program, ...program.commands.flatMap((command) => everyCommand(command as Command))];
}
