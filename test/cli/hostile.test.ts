/** What a downloaded project, and a host that is called, try to get out of who runs the command. */
import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Challenge } from 'mppx';
import { generatePrivateKey } from 'viem/accounts';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { writeAccount } from '../../host/cli/account-file.ts';
import { readText } from '../../host/cli/answer.ts';
import { run } from '../../host/cli/run.ts';
import { plainText } from '../../host/cli/terminal/plain-text.ts';
import { fakeTerminal } from './fake-terminal.ts';

const PATH_USD = '0x20c0000000000000000000000000000000000000';
const HOST = 'https://host.example';
const PRIVATE_KEY = generatePrivateKey();

let base: string;
let project: string;
beforeEach(() => {
  base = mkdtempSync(join(tmpdir(), 'turnpike-hostile-'));
  project = join(base, 'project');
  mkdirSync(project);
  writeFileSync(join(base, 'outside.txt'), 'PRIVATE');
  write('index.js', 'export default { fetch: () => new Response("CODE") };');
});
afterEach(() => rmSync(base, { recursive: true }));

function write(name: string, text: string): void {
  writeFileSync(join(project, name), text);
}

function manifest(more: object): void {
  write('turnpike.json', JSON.stringify({ slug: 'x', entry: 'index.js', ...more }));
}

interface Sent {
  request: Request;
  body: string;
}

interface Scene {
  /** Micro-USD that is asked; 0 asks for a proof. */
  amount?: string;
  published?: string;
  realm?: string;
  answer?: () => Response;
  unpaid?: () => Response;
  person?: boolean;
}

async function turnpike(args: string[], scene: Scene = {}) {
  const { amount = '200000', published = amount, realm = 'host.example', answer, unpaid, person } = scene;
  const sent: Sent[] = [];
  const fetchIt = async (input: unknown, init?: RequestInit) => {
    const request = new Request(input as string, init);
    sent.push({ request, body: await request.clone().text() });
    if (request.headers.has('authorization')) return answer?.() ?? Response.json({ ok: true });
    if (request.url.endsWith('/openapi.json')) {
      const offers = [{ currency: PATH_USD, amount: published }];
      return Response.json({ paths: { '/_admin/deploy': { post: { 'x-payment-info': { offers } } } } });
    }
    if (unpaid) return unpaid();
    const request402 = {
      amount,
      currency: PATH_USD,
      recipient: `0x${'a'.repeat(40)}`,
      methodDetails: { chainId: 42431 },
    };
    const header = Challenge.serialize(
      Challenge.from({
        id: 'challenge-id',
        realm,
        method: 'tempo',
        intent: 'charge',
        expires: new Date(Date.now() + 60_000).toISOString(),
        request: request402,
      } as never),
    );
    return new Response('{}', { status: 402, headers: { 'www-authenticate': header } });
  };
  const terminal = fakeTerminal({
    cwd: project,
    home: base,
    env: { TURNPIKE_PRIVATE_KEY: PRIVATE_KEY, TOKEN: 'VALUE' },
    interactive: person !== undefined,
    answer: person ?? false,
  });
  const code = await run(args, '0.0.0', { terminal, fetch: fetchIt as typeof fetch });
  return { code, sent, terminal };
}

/** Nothing of the user has left the machine. */
function nothingLeft(sent: Sent[]): void {
  expect(sent.map(({ body }) => body).join('')).toBe('');
  expect(sent.filter(({ request }) => request.headers.has('authorization'))).toEqual([]);
}

const EXIT = { usage: 2, refused: 3, payment: 4, unreachable: 5, cancelled: 7 };

describe('the host', () => {
  test('that only the project names gets nothing, not even by --yes', async () => {
    manifest({ host: HOST });
    for (const args of [['deploy', '--yes'], ['update', '--yes'], ['renew', '--yes'], ['get'], ['logs'], ['usage']]) {
      const { code, sent, terminal } = await turnpike([...args]);
      expect([args[0], code, sent.length]).toEqual([args[0], EXIT.usage, 0]);
      expect(terminal.stderr).toContain(`--host-url ${HOST}`);
    }
  });

  test('is confirmed once for the project, in a file of the user and not of the project', async () => {
    manifest({ host: HOST });
    const no = await turnpike(['deploy'], { person: false });
    expect([no.code, no.sent.length]).toEqual([EXIT.cancelled, 0]);
    const yes = await turnpike(['get', '--data', base], {
      person: true,
      unpaid: () => new Response('{}', { status: 404 }),
    });
    expect(yes.terminal.questions).toEqual([
      `The project names the host ${HOST}. Send its code and secrets there, and pay there?`,
    ]);
    const again = await turnpike(['get'], { unpaid: () => new Response('{}', { status: 404 }) });
    expect([again.code, again.sent.length]).toEqual([EXIT.refused, 1]);
    expect(readFileSync(join(base, '.config/turnpike/settings.json'), 'utf8')).toContain(`host ${HOST}`);
    manifest({ host: 'https://other.example' });
    expect((await turnpike(['get'])).sent).toEqual([]);
    // What one project may is not what another may.
    const copy = join(base, 'copy');
    mkdirSync(copy);
    writeFileSync(
      join(copy, 'turnpike.json'),
      readFileSync(join(project, 'turnpike.json'), 'utf8').replace('other', 'host'),
    );
    project = copy;
    expect((await turnpike(['get'])).sent).toEqual([]);
  });

  test('may stand in the settings of the user', async () => {
    manifest({ host: HOST });
    mkdirSync(join(base, '.config/turnpike'), { recursive: true });
    writeFileSync(join(base, '.config/turnpike/settings.json'), JSON.stringify({ hosts: [HOST] }));
    expect((await turnpike(['get'], { unpaid: () => new Response('{}', { status: 404 }) })).sent).toHaveLength(1);
  });

  test('without TLS gets no code, no proof and no credential, unless it is this machine or allowed', async () => {
    manifest({});
    for (const args of [
      ['deploy', '--max-pay', '1'],
      ['update', '--slug', 'x'],
      ['logs'],
      ['secrets', 'set', 'x', 'A=b'],
    ]) {
      const { code, sent } = await turnpike([...args, '--host-url', 'http://host.example']);
      expect([args[0], code]).toEqual([args[0], EXIT.usage]);
      nothingLeft(sent);
    }
    const paid = await turnpike(['pay', 'http://host.example/x', '--max-pay', '1', '--body', 'mine']);
    expect([paid.code, paid.sent.length]).toEqual([EXIT.usage, 0]);
    const allowed = await turnpike(['update', '--slug', 'x', '--host-url', 'http://host.example', '--allow-http'], {
      amount: '0',
    });
    expect(allowed.sent.at(-1)?.body).toContain('CODE');
  });

  test('gets code and secrets with the proof, and an empty question before', async () => {
    manifest({});
    const { sent } = await turnpike(['update', '--slug', 'x', '--host-url', HOST, '--secret', 'A=mine'], {
      amount: '0',
    });
    expect(sent.map(({ request, body }) => [request.headers.has('authorization'), /CODE.*mine/s.test(body)])).toEqual([
      [false, false],
      [true, true],
    ]);
    expect(sent[0]).toMatchObject({ body: '' });
  });

  test.each([200, 201, 204, 302, 307])('that answers %i without a challenge gets nothing', async (status) => {
    manifest({});
    const headers = { location: 'https://other.example/' };
    const { code, sent } = await turnpike(['deploy', '--yes', '--host-url', HOST], {
      unpaid: () => new Response(null, { status, headers }),
    });
    expect([code, sent.length]).toEqual([EXIT.refused, 1]);
    nothingLeft(sent);
  });

  test('that passes on the challenge of another is neither paid nor given a proof', async () => {
    manifest({});
    for (const amount of ['0', '100']) {
      const { code, sent } = await turnpike(
        [amount === '0' ? 'update' : 'deploy', '--max-pay', '1', '--slug', 'x', '--host-url', HOST],
        { amount, realm: 'other.example' },
      );
      expect(code).toBe(EXIT.payment);
      nothingLeft(sent);
    }
  });

  test('that redirects a paid request gets it once, and nobody else does', async () => {
    manifest({});
    const { sent } = await turnpike(['update', '--slug', 'x', '--host-url', HOST], {
      amount: '0',
      answer: () => new Response(null, { status: 307, headers: { location: 'https://other.example/' } }),
    });
    expect(sent.map(({ request }) => [new URL(request.url).host, request.redirect])).toEqual([
      ['host.example', 'manual'],
      ['host.example', 'manual'],
    ]);
  });
});

describe('the price', () => {
  test.each([
    ['5000000000', '5000000000', '--yes alone pays at most 0.20 USD'],
    ['200001', '200001', '--max-pay 0.200001'],
    ['200000', '100000', 'more than its /openapi.json says'],
  ])('%s, published as %s, is not paid by --yes', async (amount, published, words) => {
    manifest({});
    const { code, sent, terminal } = await turnpike(['deploy', '--yes', '--host-url', HOST], { amount, published });
    expect(code).toBe(EXIT.payment);
    expect(terminal.stderr).toContain(words);
    nothingLeft(sent);
  });

  test('that --yes pays is the one of the settings', async () => {
    mkdirSync(join(base, '.config/turnpike'), { recursive: true });
    writeFileSync(join(base, '.config/turnpike/settings.json'), JSON.stringify({ maxPay: '0.1' }));
    const { terminal } = await turnpike(['pay', `${HOST}/x`, '--yes'], { amount: '100001' });
    expect(terminal.stderr).toContain('--yes alone pays at most 0.10 USD');
  });

  test('of a call elsewhere is bounded the same way', async () => {
    const { code, sent } = await turnpike(['pay', `${HOST}/x`, '--yes'], { amount: '200001' });
    expect(code).toBe(EXIT.payment);
    nothingLeft(sent);
  });
});

describe('a file', () => {
  test.each(['@../outside.txt', '@/etc/hostname', '@link.txt', '@folder/outside.txt', '@folder/../../outside.txt'])(
    'outside of the project is no secret: %s',
    async (source) => {
      symlinkSync('../outside.txt', join(project, 'link.txt'));
      symlinkSync('..', join(project, 'folder'));
      manifest({ secrets: { A: source } });
      const { code, sent, terminal } = await turnpike(['deploy', '--yes', '--host-url', HOST]);
      expect([code, sent.length]).toEqual([EXIT.usage, 0]);
      expect(terminal.stderr).toContain('--secret A=@');
    },
  );

  test('that is a pipe, a device or huge is not read', async () => {
    execFileSync('mkfifo', [join(project, 'pipe')]);
    symlinkSync('/dev/zero', join(project, 'zero'));
    write('huge', 'x'.repeat(1024 * 1024 + 1));
    for (const name of ['pipe', 'zero', 'huge']) {
      manifest({ secrets: { A: `@${name}` } });
      const { code, sent } = await turnpike(['deploy', '--yes', '--host-url', HOST]);
      expect([name, code, sent.length]).toEqual([name, EXIT.usage, 0]);
    }
  });

  test.each([
    ['an import', 'import t from "../outside.txt"; export default { fetch: () => new Response(t) };'],
    ['a link', 'import t from "./link.txt"; export default { fetch: () => new Response(t) };'],
    ['a binary', 'import t from "./link.bin"; export default { fetch: () => new Response(t) };'],
    ['JSON', 'import t from "../wallet.json"; export default { fetch: () => new Response(t.key) };'],
    ['a pipe', 'import t from "./pipe.txt"; export default { fetch: () => new Response(t) };'],
  ])('is not bundled by %s', async (_, code) => {
    symlinkSync('../outside.txt', join(project, 'link.txt'));
    symlinkSync('../outside.txt', join(project, 'link.bin'));
    writeFileSync(join(base, 'wallet.json'), '{"key":"PRIVATE"}');
    execFileSync('mkfifo', [join(project, 'pipe.txt')]);
    write('index.js', code);
    manifest({});
    const result = await turnpike(['update', '--slug', 'x', '--host-url', HOST], { amount: '0' });
    expect([result.code, result.sent.length]).toEqual([EXIT.usage, 0]);
  });

  test('is not bundled by a source map that names it; one that is named by --root is', async () => {
    const map = { version: 3, sources: ['../outside.txt'], names: [], mappings: 'AAAA' };
    const inline = Buffer.from(JSON.stringify(map)).toString('base64');
    write(
      'index.js',
      `export default { fetch: () => 1 };\n//# sourceMappingURL=data:application/json;base64,${inline}\n`,
    );
    manifest({});
    const { sent } = await turnpike(['update', '--slug', 'x', '--host-url', HOST], { amount: '0' });
    const { modules } = JSON.parse(sent.at(-1)?.body ?? '{}') as { modules: Record<string, string> };
    const made = Buffer.from(/base64,(\S+)/.exec(modules['index.js'] ?? '')?.[1] ?? '', 'base64').toString();
    expect(made).toContain('outside.txt');
    expect(made).not.toContain('PRIVATE');
    write('index.js', 'import t from "../outside.txt"; export default { fetch: () => new Response(t) };');
    const wider = await turnpike(['update', '--slug', 'x', '--host-url', HOST, '--root', '..'], { amount: '0' });
    expect(wider.sent.at(-1)?.body).toContain('PRIVATE');
  });

  test('that is the entry must be in the project', async () => {
    writeFileSync(join(base, 'other.js'), 'export default {};');
    manifest({ entry: '../other.js' });
    expect((await turnpike(['deploy', '--yes', '--host-url', HOST])).code).toBe(EXIT.usage);
  });
});

test('a variable of the environment is the user’s to allow, once, for a project and a host', async () => {
  manifest({ secrets: { A: 'env:TOKEN' } });
  const update = (...args: string[]) => ['update', '--slug', 'x', '--host-url', HOST, ...args];
  const refused = await turnpike(update('--yes'), { amount: '0' });
  expect([refused.code, refused.sent.length]).toEqual([EXIT.usage, 0]);
  expect(refused.terminal.stderr).toContain('--allow-env TOKEN');
  const allowed = await turnpike(update('--allow-env', 'TOKEN'), { amount: '0' });
  expect(allowed.sent.at(-1)?.body).toContain('VALUE');
  const asked = await turnpike(update(), { amount: '0', person: true });
  expect(asked.terminal.questions).toHaveLength(1);
  expect((await turnpike(update(), { amount: '0' })).sent.at(-1)?.body).toContain('VALUE');
  expect(
    (await turnpike(['update', '--slug', 'x', '--host-url', 'https://other.example'], { amount: '0' })).sent,
  ).toEqual([]);
});

test('a slug that was not deployed from the project is not replaced because the project names it', async () => {
  manifest({});
  const refused = await turnpike(['update', '--yes', '--host-url', HOST], { amount: '0' });
  expect([refused.code, refused.sent.length]).toEqual([EXIT.usage, 0]);
  const asked = await turnpike(['update', '--host-url', HOST], { amount: '0', person: true });
  expect(asked.terminal.questions).toHaveLength(1);
  expect((await turnpike(['update', '--host-url', HOST], { amount: '0' })).sent.at(-1)?.body).toContain('CODE');
});

describe('what a host says', () => {
  const HOSTILE = '\u001b]0;title\u0007\u001b[2J\u009b31m\rover\u202efdp\u200b\u0000';

  test('does not drive the terminal', async () => {
    const detail = `bad ${HOSTILE}`;
    const answer = () => Response.json({ status: 404, detail }, { status: 404 });
    for (const args of [
      ['get', 'x'],
      ['get', 'x', '--json'],
    ]) {
      const { terminal } = await turnpike([...args, '--host-url', HOST], { unpaid: answer });
      const said = terminal.stdout + terminal.stderr;
      expect(said).toContain('bad ');
      expect(plainText(said)).toBe(said);
    }
    const json = await turnpike(['get', 'x', '--json', '--host-url', HOST], { unpaid: answer });
    expect(JSON.parse(json.terminal.stdout).error.message).toBe(detail);
  });

  test('is plain on a screen, and as it came in a file', async () => {
    const unpaid = () => new Response(HOSTILE);
    const { terminal } = await turnpike(['pay', `${HOST}/x`], { unpaid });
    expect(terminal.stdout).toBe(HOSTILE);
    const screen = fakeTerminal({ env: { TURNPIKE_PRIVATE_KEY: PRIVATE_KEY }, outIsScreen: true });
    await run(['pay', `${HOST}/x`], '0.0.0', {
      terminal: screen,
      fetch: (async () => unpaid()) as unknown as typeof fetch,
    });
    expect(screen.stdout).toBe(plainText(HOSTILE));
  });

  test.each([
    'null',
    '[]',
    '"text"',
    '{"detail":{"a":1}}',
    '{"errors":5}',
    '{"errors":[null]}',
    '['.repeat(1_000_000),
    'not JSON',
  ])('is a failure in one sentence, whatever it is (%#)', async (text) => {
    for (const status of [200, 402, 404, 500]) {
      const { code, terminal } = await turnpike(['get', 'x', '--host-url', HOST], {
        unpaid: () => new Response(text, { status, headers: { 'content-type': 'application/problem+json' } }),
      });
      expect(code).toBeGreaterThan(status === 200 ? 0 : 1);
      expect(terminal.stderr).toMatch(/^turnpike: [^\n]{1,400}\n/);
    }
  });

  test('is not read without an end', async () => {
    let given = 0;
    const endless = new ReadableStream({
      pull(controller) {
        given += 65_536;
        controller.enqueue(new Uint8Array(65_536));
      },
    });
    await expect(readText(new Response(endless), 1_000_000)).rejects.toMatchObject({ exit: 'unreachable' });
    expect(given).toBeLessThan(2_000_000);
  });

  test('an event of a log that has no end is not kept', async () => {
    const endless = () => {
      const text = new TextEncoder().encode(`data: ${'x'.repeat(65_536)}`);
      return new Response(new ReadableStream({ pull: (controller) => controller.enqueue(text) }));
    };
    const answers = [
      () => Response.json({ token: 'token' }, { status: 201 }),
      endless,
      () => Response.json({ status: 404 }, { status: 404 }),
    ];
    const { code } = await turnpike(['logs', 'x', '-f', '--host-url', HOST], {
      unpaid: () => answers.shift()?.() as Response,
      answer: () => answers.shift()?.() as Response,
    });
    expect(code).toBe(EXIT.refused);
  });
});

describe('a mandate', () => {
  const DAY_MS = 86_400_000;
  /** Mandates end at a whole second. */
  const inDays = (days: number) => Math.floor(Date.now() / 1_000) * 1_000 + days * DAY_MS;
  const wanted = { amount: '20000000', days: 30, until: inDays(80) };
  /** The challenge of a host that asks for this, in a 402. */
  const asks = ({ amount, days, until } = wanted) => {
    const request = {
      ...{ amount, currency: PATH_USD, recipient: `0x${'a'.repeat(40)}`, periodCount: String(days), periodUnit: 'day' },
      subscriptionExpires: new Date(until).toISOString(),
      methodDetails: {
        chainId: 42431,
        accessKey: { accessKeyAddress: `0x${'b'.repeat(40)}`, keyType: 'secp256k1' },
      },
    };
    const id = Buffer.alloc(32).toString('base64url');
    const challenge = { id, realm: 'host.example', method: 'tempo', intent: 'subscription', request };
    const header = Challenge.serialize(Challenge.from(challenge as never));
    return () => new Response('{}', { status: 402, headers: { 'www-authenticate': header } });
  };
  const signed = (sent: Sent[]) =>
    sent.some(({ request }) => /^payment/i.test(request.headers.get('authorization') ?? ''));
  const account = (host: string) =>
    writeAccount({ env: {}, home: base }, new URL(host), { host, accountId: 'acc', credential: 'CREDENTIAL' });
  const topUp = ['account', 'auto-topup', '5.00', '--host-url', HOST];

  test('is what the user wanted, or is not signed, whatever limit there is', async () => {
    await account(HOST);
    const { amount, days, until } = wanted;
    for (const limit of [['--yes'], ['--max-pay', '1000000']]) {
      const { sent } = await turnpike([...topUp, ...limit], { answer: asks() });
      expect(signed(sent)).toBe(true);
      for (const more of [
        { amount, days: 1, until },
        { amount: '20000001', days, until },
        { amount, days, until: inDays(100) },
      ]) {
        const refused = await turnpike([...topUp, ...limit], { answer: asks(more) });
        expect([refused.code, signed(refused.sent)]).toEqual([EXIT.payment, false]);
        expect(refused.terminal.stderr).toContain('more than was wanted');
      }
    }
    const renew = ['renew', 'x', '--auto', '--max-pay', '20', '--host-url', HOST];
    expect(signed((await turnpike(renew, { unpaid: asks() })).sent)).toBe(true);
    const late = await turnpike(renew, { unpaid: asks({ amount, days, until: inDays(367) }) });
    expect([late.code, signed(late.sent)]).toEqual([EXIT.payment, false]);
  });

  test('is not signed for a host that only the project names', async () => {
    manifest({ host: HOST });
    const { code, sent } = await turnpike(['renew', '--auto', '--max-pay', '20'], { unpaid: asks() });
    expect([code, sent]).toEqual([EXIT.usage, []]);
  });

  test('credit of an account is shown to no other host, though the user confirmed that one', async () => {
    manifest({ host: HOST });
    await account('http://localhost:8402');
    mkdirSync(join(base, '.config/turnpike'), { recursive: true });
    writeFileSync(join(base, '.config/turnpike/settings.json'), JSON.stringify({ hosts: [HOST] }));
    for (const more of [['--most', '1.00'], ['--off']]) {
      const { code, sent } = await turnpike(['account', 'renew', 'x', ...more]);
      expect([code, sent]).toEqual([EXIT.usage, []]);
    }
  });
});
