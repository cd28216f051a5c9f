/** The entry of the `turnpike` command: runs it and ends the process with its exit code. */
import { readFileSync } from 'node:fs';
import { CommanderError } from 'commander';
import { exitCode } from './exit-codes.ts';
import { createProgram } from './program.ts';
import { asFailure, failureDocument, failureText } from './terminal/failure.ts';

const { version } = JSON.parse(readFileSync(new URL('../../package.json', import.meta.url), 'utf8')) as {
  version: string;
};

/** @param args without the program's name */
export async function main(args: string[]): Promise<number> {
  const program = createProgram(version);
  for (const command of everyCommand(program)) command.exitOverride();
  try {
    await program.parseAsync(args, { from: 'user' });
    return exitCode('ok');
  } catch (error) {
    // Help and version end this way too, with code 0; everything else that commander throws is a matter of usage.
    if (error instanceof CommanderError) return error.exitCode === 0 ? exitCode('ok') : exitCode('usage');
    const failure = asFailure(error);
    if (!args.includes('--json')) process.stderr.write(`${failureText(failure)}\n`);
    else if (!failure.reported) process.stdout.write(`${JSON.stringify(failureDocument(failure), null, 2)}\n`);
    return exitCode(failure.exit);
  }
}

function everyCommand(program: ReturnType<typeof createProgram>): ReturnType<typeof createProgram>[] {
  return [program, ...program.commands.flatMap((command) => everyCommand(command as typeof program))];
}

process.exitCode = await main(process.argv.slice(2));
