/** Runs the command once: parses, works, and turns whatever happens into output and an exit code. */
import { type Command, CommanderError } from 'commander';
import { exitCode } from './exit-codes.ts';
import { createProgram } from './program.ts';
import type { CommandDeps } from './session.ts';
import { asFailure, Failure, failureDocument, failureText } from './terminal/failure.ts';
import { plainTerminal } from './terminal/plain-text.ts';

/**
 * @param args without the program's name
 * @param version of the package
 * @param ofHost commands that need the host's own code
 * @returns the exit code
 */
export async function run(args: string[], version: string, deps: CommandDeps, ofHost: Command[] = []): Promise<number> {
  const terminal = plainTerminal(deps.terminal);
  const json = args.includes('--json');
  const program = createProgram(version, deps, ofHost);
  for (const command of everyCommand(program)) {
    command
      .exitOverride()
      .configureHelp({ showGlobalOptions: true })
      .showHelpAfterError(`See ${nameOf(command)} --help.`)
      .configureOutput({
        writeOut: (text) => terminal.out(text),
        writeErr: (text) => {
          if (!json) terminal.err(text.replace(/\n$/, ''));
        },
      });
  }
  try {
    await program.parseAsync(args, { from: 'user' });
    return exitCode('ok');
  } catch (error) {
    const ofCommander = error instanceof CommanderError;
    // Help and version end this way too, with code 0; everything else that commander throws is a matter of usage.
    if (ofCommander && error.exitCode === 0) return exitCode('ok');
    const failure = ofCommander ? usageFailure(error) : asFailure(error);
    if (json) {
      if (!failure.reported) terminal.out(`${JSON.stringify(failureDocument(failure), null, 2)}\n`);
    } else if (!ofCommander) {
      // Commander has told the person itself.
      terminal.err(failureText(failure));
    }
    return exitCode(failure.exit);
  }
}

function usageFailure({ code, message }: CommanderError): Failure {
  // Without a command it shows the help, and has no message.
  const fault =
    code === 'commander.help' ? 'no command is named' : message.replace(/^error: |\.$/g, '').replaceAll('\n', ' ');
  return new Failure('usage', `Not understood: ${fault}. See turnpike --help.`);
}

/** As a person types it: `turnpike domains add`. */
function nameOf(command: Command): string {
  return command.parent === null ? command.name() : `${nameOf(command.parent)} ${command.name()}`;
}

function everyCommand(program: Command): Command[] {
  return [program, ...program.commands.flatMap((command) => everyCommand(command as Command))];
}
