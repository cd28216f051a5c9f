import { generatePrivateKey } from 'viem/accounts';
import { expect, test } from 'vitest';
import { HostClient } from '../../host/cli/host-client.ts';
import { fakeTerminal, runCommand } from './fake-terminal.ts';

test('an event whose text has line separators of Unicode is not lost', async () => {
  const data = JSON.stringify({ id: 1, text: 'a\u2028b\u2029c\u0085d' });
  const client = new HostClient({
    url: new URL('http://host.example'),
    fetch: (async () => new Response(`id: 1\ndata: ${data}\n\n`)) as typeof fetch,
    signal: new AbortController().signal,
    paying: async () => Promise.reject(new Error('nothing to pay')),
  });
  const events: { id: string; data: string }[] = [];
  for await (const event of client.events('/x', {})) events.push(event);
  expect(events).toEqual([{ id: '1', data }]);
});

/** `logs -f` against a host that gives tokens, and answers to them one after the other as the test says. */
async function follow(answers: (() => Response)[]) {
  const asked: string[] = [];
  let tokens = 0;
  const fetch = (async (input: URL) => {
    const token = input.pathname.startsWith('/_admin/session');
    asked.push(token ? 'token' : 'logs');
    const answer = answers.shift();
    return answer?.() ?? Response.json({ token: `token ${++tokens}` }, { status: 201 });
  }) as unknown as typeof globalThis.fetch;
  const env = { TURNPIKE_PRIVATE_KEY: generatePrivateKey() };
  // One that goes on for ever ends here, without a failure.
  const terminal = fakeTerminal({ env, signal: AbortSignal.timeout(4_500) });
  const args = ['logs', 'hello', '-f', '--host-url', 'https://host.example'];
  const failure = await runCommand(args, { terminal, fetch }).catch((error: unknown) => error);
  return { asked, failure, stdout: terminal.stdout };
}

const given = () => Response.json({ token: 'token' }, { status: 201 });
const line = () =>
  new Response('id: 1\ndata: {"id":1,"time":"now","kind":"console","level":"log","text":"a line"}\n\n');
const problem = (status: number, detail: string) => () => Response.json({ status, detail }, { status });

test('a tail goes on with another token, and ends with what the host says to that one', async () => {
  const { asked, failure, stdout } = await follow([
    given,
    line,
    problem(503, 'Starting.'),
    problem(401, 'The token ran out.'),
    given,
    problem(402, 'The wallet is not accepted.'),
  ]);
  expect(failure).toMatchObject({ exit: 'payment', message: 'The wallet is not accepted.' });
  expect(asked).toEqual(['token', 'logs', 'logs', 'logs', 'token', 'logs']);
  expect(stdout).toContain('a line');
});

test('a tail ends when its deployment is gone', async () => {
  const { asked, failure } = await follow([given, line, problem(404, 'There is no deployment hello.')]);
  expect(failure).toMatchObject({ exit: 'refused', message: 'There is no deployment hello.' });
  expect(asked).toEqual(['token', 'logs', 'logs']);
});
