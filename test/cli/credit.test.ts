import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Challenge, Credential } from 'mppx';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { fakeTerminal, runCommand } from './fake-terminal.ts';

const HOST = 'https://host.example';
const URL_ = `${HOST}/pay/deals/v1/watches`;
let home: string;

beforeEach(async () => {
  home = mkdtempSync(join(tmpdir(), 'turnpike-credit-'));
  const fetchIt = async () => Response.json({ accountId: 'acc_1', credential: 'tpk_secret' }, { status: 201 });
  const deps = { terminal: fakeTerminal({ home }), fetch: fetchIt as typeof fetch };
  await runCommand(['account', 'register', '--host-url', HOST], deps);
});
afterEach(() => rmSync(home, { recursive: true }));

function challenge(request: object, method = 'credit'): string {
  const expires = new Date(Date.now() + 60_000).toISOString();
  return Challenge.serialize(
    Challenge.from({ id: 'challenge-id', realm: 'host.example', method, intent: 'charge', expires, request } as never),
  );
}

const asked = {
  amount: '250000',
  currency: 'USD',
  decimals: 6,
  balance: '5000000',
  creditPayUrl: `${HOST}/pay/deals-watches`,
};

/** Asks for a payment, and keeps every request that reached it. */
function server(header: string) {
  const requests: Request[] = [];
  const fetchIt = async (input: unknown, init?: RequestInit) => {
    const request = new Request(input as string, init);
    requests.push(request);
    if (request.headers.get('authorization')?.startsWith('Payment ')) return Response.json({ ok: true });
    return new Response('{}', { status: 402, headers: { 'www-authenticate': header } });
  };
  return { requests, fetch: fetchIt as typeof fetch };
}

const pay = (header: string, ...flags: string[]) => {
  const { requests, fetch } = server(header);
  const terminal = fakeTerminal({ home });
  const run = runCommand(['pay', URL_, '--credit', '-d', '{}', ...flags], { terminal, fetch });
  return { requests, terminal, run };
};

test('answers the challenge with the account’s credential, once, and never prints it', async () => {
  const { requests, terminal, run } = pay(challenge(asked), '--max-pay', '0.25', '--json');
  await run;
  expect(JSON.parse(terminal.stdout)).toMatchObject({ status: 200, paid: { protocol: 'credit', amount: '0.25' } });
  expect(requests).toHaveLength(2);
  const sent = Credential.deserialize(requests[1]?.headers.get('authorization') ?? '');
  expect(sent).toMatchObject({
    challenge: { id: 'challenge-id', request: asked },
    payload: { credential: 'tpk_secret' },
  });
  expect(terminal.stdout + terminal.stderr).not.toContain('tpk_secret');
});

describe('refuses, and promises nothing', () => {
  test.each([
    [
      'a price over the limit',
      challenge({ ...asked, amount: '250001' }),
      ['--max-pay', '0.25'],
      'payment',
      'more than the limit',
    ],
    [
      'more than the credit',
      challenge({ ...asked, balance: '249999' }),
      ['--yes'],
      'payment',
      'the credit is 0.249999',
    ],
    ['any price without a limit or a yes', challenge(asked), [], 'usage', '--max-pay 0.25'],
    ['a challenge of another method', challenge(asked, 'tempo'), ['--yes'], 'payment', 'does not sell from credit'],
    [
      'an amount that is none',
      challenge({ ...asked, amount: '-1' }),
      ['--yes'],
      'payment',
      'does not sell from credit',
    ],
  ])('%s', async (_, header, flags, exit, words) => {
    const { requests, run } = pay(header, ...flags);
    await expect(run).rejects.toMatchObject({ exit, message: expect.stringContaining(words) });
    expect(requests).toHaveLength(1);
  });
});

test('without an account on that host nothing is sent', async () => {
  const { requests, fetch } = server(challenge(asked));
  const run = runCommand(['pay', 'https://other.example/x', '--credit', '--yes'], {
    terminal: fakeTerminal({ home }),
    fetch,
  });
  await expect(run).rejects.toMatchObject({ exit: 'usage', message: expect.stringContaining('account register') });
  expect(requests).toHaveLength(0);
});
