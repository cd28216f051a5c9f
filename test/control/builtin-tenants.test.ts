import { beforeEach, expect, it, vi } from 'vitest';
import { digestOfSources } from '../../host/control/builtin-sources.ts';
import { deployBuiltins } from '../../host/control/builtin-tenants.ts';
import { type Builtin, readBuiltins, wantedCompanions } from '../../host/control/builtins.ts';
import type { ControlDeps } from '../../host/control/deps.ts';
import { Mutex } from '../../host/shared/mutex.ts';

const OWNER = { address: '0x00000000000000000000000000000000000000aa', did: 'did:pkh:eip155:1:0xaa' };
const error = vi.fn();
const parts = {
  config: { builtinTenants: { secrets: {} } },
  builtins: [],
  builtinTurns: new Mutex(),
  log: { error, info: vi.fn() },
} as unknown as ControlDeps;
/** No tenant has these names. */
const deploy = (stopping: AbortSignal, pausesMs: number[]) =>
  deployBuiltins(parts, vi.fn(), {
    owner: OWNER,
    records: { read: async () => undefined, save: async () => undefined },
    forward: vi.fn(),
    waiting: new Set(['one', 'two']),
    stopping,
    pausesMs,
  });
const failures = () => error.mock.calls.map(([{ name, againInS }]) => [name, againInS]);

beforeEach(() => error.mockClear());

it('tries what fails again after each pause, and then after the last', async () => {
  const stopping = new AbortController();
  const done = deploy(stopping.signal, [1, 2]);
  await expect.poll(() => error.mock.calls.length >= 6).toBe(true);
  stopping.abort();
  await done;
  expect(failures().slice(0, 6)).toEqual([
    ['one', 0.001],
    ['two', 0.001],
    ['one', 0.002],
    ['two', 0.002],
    ['one', 0.002],
    ['two', 0.002],
  ]);
});

it('does not go on once the host stops', async () => {
  const stopping = new AbortController();
  const done = deploy(stopping.signal, [60_000]);
  await expect.poll(() => error.mock.calls.length === 2).toBe(true);
  stopping.abort();
  await done;
  expect(failures()).toHaveLength(2);
});

it.each([
  [{ enabled: ['speech', 'deal'], secrets: {} }, 'builtinTenants.enabled: there is no built-in tenant deal; there are'],
  [{ enabled: [], secrets: { pai: {} } }, 'builtinTenants.secrets: there is no built-in tenant pai; there are'],
])('a name that no built-in tenant has is refused: %j', (given, message) => {
  expect(() => readBuiltins('builtin-tenants', given)).toThrow(message);
});

it('companions are those of enabled tenants', () => {
  const builtins = readBuiltins('builtin-tenants', { enabled: ['speech'], secrets: { pay: {} } });
  expect(builtins.map(({ name }) => name).sort()).toEqual(['deals', 'pay', 'speech']);
  expect([...wantedCompanions(builtins, ['deals', 'speech'])]).toEqual(['speech-engine']);
  expect([...wantedCompanions(builtins, ['pay'])]).toEqual(['mailer']);
});

it.each([
  ['', {}, true],
  ['by another owner', { address: `0x${'b'.repeat(40)}` }, false],
  ['with other settings', { revision: 8 }, false],
  ['with other secrets', { secrets: { KEY: 'new', OTHER: '' } }, false],
  ['and its code is lost', { code: () => Promise.reject(new Error('lost')) }, false],
])('what runs already%s is left as it is: %j %s', async (_, { address, revision, secrets, code }: Running, stays) => {
  const row = { tenant: 't_1', slug: 'one', builtin: true, state: 'active', revision: revision ?? 7, digest: 'd' };
  const builtin: Partial<Builtin> = {
    name: 'one',
    main: '/there/is/none.ts',
    body: { secrets: { KEY: 'new' } },
    asks: { title: '', description: '', secrets: {}, companions: [], sells: [] },
  };
  const deps = {
    ...parts,
    publicUrl: 'http://localhost',
    builtins: [builtin],
    deployments: { bySlug: async () => row },
    secrets: { reveal: async () => secrets ?? { KEY: 'new' } },
    codeStore: { get: code ?? (async () => ({})) },
  } as unknown as ControlDeps;
  const stopping = new AbortController();
  const waiting = new Set(['one']);
  const done = deployBuiltins(deps, vi.fn(), {
    owner: { ...OWNER, ...(address ? { address } : {}) },
    records: { read: async () => `t_1 7 ${OWNER.address} ${await digestOfSources()}`, save: vi.fn() },
    forward: async () => new Response('ok'),
    waiting,
    stopping: stopping.signal,
    pausesMs: [60_000],
  });
  await expect.poll(() => waiting.size === 0 || error.mock.calls.length > 0).toBe(true);
  stopping.abort();
  await done;
  expect(waiting.size === 0).toBe(stays);
  if (!stays) expect(error.mock.calls[0]?.[0].err.code).toBe('code_rejected');
});

interface Running {
  address?: string;
  revision?: number;
  secrets?: Record<string, string>;
  code?: () => Promise<never>;
}
