import { Challenge } from 'mppx';
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts';
import { describe, expect, test } from 'vitest';
import { realmMatches } from '../../host/cli/paying/pay-request.ts';
import { run } from '../../host/cli/run.ts';
import { fakeTerminal, runCommand } from './fake-terminal.ts';

const PATH_USD = '0x20c0000000000000000000000000000000000000';
const privateKey = generatePrivateKey();
const env = { TURNPIKE_PRIVATE_KEY: privateKey };

function challenge(amount: string, realm = 'host.example', currency = PATH_USD): string {
  return Challenge.serialize(
    Challenge.from({
      id: 'challenge-id',
      realm,
      method: 'tempo',
      intent: 'charge',
      expires: new Date(Date.now() + 60_000).toISOString(),
      request: { amount, currency, recipient: `0x${'a'.repeat(40)}`, methodDetails: { chainId: 42431 } },
    } as never),
  );
}

/** A server that asks for money, and keeps every request that reached it. */
function server(header: string) {
  const requests: Request[] = [];
  const fetchIt = async (input: unknown, init?: RequestInit) => {
    const request = new Request(input as string, init);
    requests.push(request);
    if (request.headers.has('authorization')) return Response.json({ ok: true });
    return new Response('{}', { status: 402, headers: { 'www-authenticate': header } });
  };
  return { requests, fetch: fetchIt as typeof fetch };
}

describe('turnpike pay refuses', () => {
  test.each([
    ['a price over the limit', challenge('250001'), ['--max-pay', '0.25'], 'payment', 'more than the limit of 0.25'],
    [
      'a token it does not know',
      challenge('1', 'host.example', `0x${'b'.repeat(40)}`),
      ['--max-pay', '0.25'],
      'payment',
      'not known here',
    ],
    ['any price without a limit or a yes', challenge('1'), [], 'usage', '--max-pay'],
    [
      'a protocol that was not asked for',
      challenge('1'),
      ['--max-pay', '1', '--protocol', 'x402'],
      'payment',
      'by x402',
    ],
    ['a limit that is no amount', challenge('1'), ['--max-pay', '1e9'], 'usage', 'Not an amount'],
  ])('%s, and sends nothing signed', async (_, header, flags, exit, words) => {
    const { requests, fetch } = server(header);
    const terminal = fakeTerminal({ env });
    const run = runCommand(['pay', 'https://host.example/x', ...flags], { terminal, fetch });
    await expect(run).rejects.toMatchObject({ exit, message: expect.stringContaining(words) });
    expect(requests.every((request) => !request.headers.has('authorization'))).toBe(true);
    expect(terminal.stdout).toBe('');
  });

  test('when the person says no', async () => {
    const { requests, fetch } = server(challenge('200000'));
    const terminal = fakeTerminal({ env, interactive: true, answer: false });
    await expect(runCommand(['pay', 'https://host.example/x'], { terminal, fetch })).rejects.toMatchObject({
      exit: 'cancelled',
    });
    expect(terminal.questions).toEqual(['Pay 0.20 USD for host.example?']);
    expect(requests).toHaveLength(1);
  });
});

test('an answer that costs nothing comes as it is', async () => {
  const terminal = fakeTerminal({ env });
  const fetchIt = (async () => new Response('free')) as unknown as typeof fetch;
  await runCommand(['pay', 'https://host.example/x'], { terminal, fetch: fetchIt });
  expect(terminal.stdout).toBe('free');
});

describe('a proof of ownership', () => {
  test('is signed for the host that is called', async () => {
    const { requests, fetch } = server(challenge('0'));
    const terminal = fakeTerminal({ env });
    await runCommand(['secrets', 'rm', 'hello', 'KEY', '--host-url', 'https://host.example'], { terminal, fetch });
    const [first, second] = requests;
    expect([first?.method, new URL(first?.url ?? '').pathname]).toEqual(['PUT', '/_admin/code/hello']);
    expect(await second?.json()).toEqual({ secretChanges: { KEY: null } });
    const credential = JSON.parse(
      Buffer.from(second?.headers.get('authorization')?.slice(8) ?? '', 'base64url').toString(),
    );
    expect(credential.source).toBe(`did:pkh:eip155:42431:${privateKeyToAccount(privateKey).address}`);
  });

  test('is never a payment', async () => {
    const { requests, fetch } = server(challenge('1'));
    const args = ['secrets', 'rm', 'hello', 'KEY', '--host-url', 'https://host.example', '--yes', '--max-pay', '5'];
    await expect(runCommand(args, { terminal: fakeTerminal({ env }), fetch })).rejects.toMatchObject({
      exit: 'payment',
    });
    expect(requests).toHaveLength(1);
  });

  test('is never given to a host that relays the challenge of another', async () => {
    const { requests, fetch } = server(challenge('0', 'bank.example'));
    const args = ['secrets', 'rm', 'hello', 'KEY', '--host-url', 'https://host.example'];
    await expect(runCommand(args, { terminal: fakeTerminal({ env }), fetch })).rejects.toMatchObject({
      exit: 'payment',
    });
    expect(requests).toHaveLength(1);
  });

  test.each([
    ['host.example', 'https://host.example/', true],
    ['localhost', 'http://127.0.0.1:8402/', true],
    ['localhost:8402', 'http://localhost:8402/', true],
    ['http://localhost:8402', 'http://localhost:8402/', true],
    ['localhost:9999', 'http://localhost:8402/', false],
    ['host.example.evil', 'https://host.example/', false],
    ['localhost.evil', 'http://localhost:8402/', false],
  ])('realm %s for %s: %s', (realm, url, expected) => {
    expect(realmMatches(realm, new URL(url))).toBe(expected);
  });
});

test.each([
  ['{"text":"hi"}', [], 'application/json'],
  ['{"text":"hi"}', ['-H', 'content-type: text/plain'], 'text/plain'],
  ['hi', [], 'text/plain;charset=UTF-8'],
  ['5', [], 'text/plain;charset=UTF-8'],
])('the body %s with %j is sent as %s%s', async (body, flags, type) => {
  const { requests, fetch } = server(challenge('1'));
  await runCommand(['pay', 'https://host.example/x', '-d', body, '--yes', ...flags], {
    terminal: fakeTerminal({ env }),
    fetch,
  }).catch(() => undefined);
  expect(requests[0]?.headers.get('content-type')).toBe(type);
});

test.each([
  ['no', 404, '\n'],
  ['no\n', 404, ''],
  ['', 404, ''],
  ['yes', 200, ''],
])(
  'the message about an answer %j begins on a line of its own, and the answer stays as it came',
  async (body, status, before) => {
    const terminal = fakeTerminal({ env });
    const fetchIt = (async () => new Response(body, { status })) as unknown as typeof fetch;
    await run(['pay', 'https://host.example/x'], '0.0.0', { terminal, fetch: fetchIt });
    expect(terminal.stdout).toBe(body);
    const message = status === 404 ? 'turnpike: host.example answered 404.\n' : '';
    expect(terminal.stderr).toBe(before + message);
  },
);
