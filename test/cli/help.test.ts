/** What the command tells a person who asks for help, or who mistyped. */
import { expect, test } from 'vitest';
import { hostCommands } from '../../host/cli/host-commands.ts';
import { run } from '../../host/cli/run.ts';
import { Failure, failureText } from '../../host/cli/terminal/failure.ts';
import { fakeTerminal } from './fake-terminal.ts';

async function turnpike(...args: string[]) {
  const terminal = fakeTerminal();
  const code = await run(args, '0.0.0', { terminal, fetch }, hostCommands({ terminal, fetch }));
  return { code, ...terminal };
}

test('the help of a command shows the options that all commands take', async () => {
  const { code, stdout } = await turnpike('renew', '--help');
  expect(code).toBe(0);
  expect(stdout).toMatch(/Global Options:[\s\S]*--yes[\s\S]*--max-pay/);
});

test.each([
  [['domains', 'add'], 'See turnpike domains add --help.'],
  [['deploy', '--nope'], 'See turnpike deploy --help.'],
  [['deploi'], 'See turnpike --help.'],
])('what is not understood (%j) names the help', async (args, hint) => {
  const { code, stderr } = await turnpike(...args);
  expect(code).toBe(2);
  expect(stderr).toContain(hint);
});

test('a place that the message names already is not told twice', () => {
  const problem = (detail: string, errors: object[]) => new Failure('refused', detail, { detail, errors } as never);
  expect(failureText(problem('Not acceptable: /slug is odd.', [{ pointer: '/slug', detail: 'is odd' }]))).toBe(
    'turnpike: Not acceptable: /slug is odd.',
  );
  const bad = { pointer: '/code', detail: 'No end', file: 'a.ts', line: 1, column: 2 };
  expect(failureText(problem('The code does not bundle: No end', [bad]))).toBe(
    'turnpike: The code does not bundle: No end\n  a.ts:1:2  No end',
  );
});
