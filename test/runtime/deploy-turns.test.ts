import { expect, test } from 'vitest';
import { type Asker, DeployTurns } from '../../host/runtime/deploy/deploy-turns.ts';
import { Problem } from '../../host/shared/problem.ts';

const stranger = (wallet: string, address = '192.0.2.1'): Asker => ({ kind: 'stranger', wallet, address });
const owner = (wallet: string): Asker => ({ kind: 'owner', wallet });
const refused = async (): Promise<never> => {
  throw new Problem('code_rejected', 'An endless loop.');
};

/** Work that is under way until it is told to end, in the order in which it began. */
function bench(turns: DeployTurns) {
  const begun: string[] = [];
  const ends: ((refuse: boolean) => void)[] = [];
  const settle = () => new Promise((resolve) => setImmediate(resolve));
  return {
    begun,
    async ask(name: string, asker: Asker): Promise<Promise<string>> {
      const answer = turns
        .run(asker, async () => {
          begun.push(name);
          const refuse = await new Promise<boolean>((resolve) => ends.push(resolve));
          return refuse ? await refused() : name;
        })
        .then(
          ({ result }) => result,
          (error: Problem) => error.code,
        );
      await settle();
      return answer;
    },
    async end(refuse = false): Promise<void> {
      ends.shift()?.(refuse);
      await settle();
    },
  };
}

test('whatever strangers send, an owner has a place', async () => {
  const { begun, ask } = bench(new DeployTurns());
  for (let index = 0; index < 1_000; index++) void ask(`s${index}`, stranger(`w${index}`, `192.0.2.${index % 250}`));
  void ask('update', owner('paid'));
  await expect.poll(() => begun).toEqual(['s0', 'update']);
});

test('one address with a thousand wallets is one caller, and so is a /64', async () => {
  for (const address of [
    () => '192.0.2.1',
    (index: number) => `2001:db8::${index.toString(16)}`,
    () => '::ffff:192.0.2.1',
  ]) {
    const { begun, ask, end } = bench(new DeployTurns());
    for (let index = 0; index < 1_000; index++) void ask(`s${index}`, stranger(`w${index}`, address(index)));
    void ask('honest', stranger('honest', '198.51.100.7'));
    await expect.poll(() => begun.length).toBe(1);
    await end();
    await end();
    expect(begun.indexOf('honest')).toBeLessThanOrEqual(2);
  }
});

test('the queue is bounded, for one caller and in all, and says when to come again', async () => {
  const turns = new DeployTurns();
  const never = () => new Promise<never>(() => {});
  const fill = (asker: Asker) => turns.run(asker, never).catch((error: Problem) => error);
  for (let index = 0; index < 5; index++) void fill(stranger('w', '192.0.2.1'));
  expect(await fill(stranger('w', '192.0.2.1'))).toMatchObject({
    code: 'rate_limited',
    headers: { 'retry-after': '5' },
  });
  for (let index = 2; index < 30; index++) void fill(stranger('w', `192.0.2.${index}`));
  expect(await fill(stranger('w', '192.0.2.99'))).toMatchObject({
    code: 'overloaded',
    headers: { 'retry-after': '30' },
  });
});

test('who waits too long is sent away', async () => {
  const turns = new DeployTurns({ atOnce: 1, waitMs: 10 });
  void turns.run(owner('a'), () => new Promise(() => {}));
  await expect(turns.run(owner('b'), async () => 1)).rejects.toMatchObject({ code: 'overloaded' });
});

test('refused work is forgiven at a twentieth of its pace, per wallet and per address', async () => {
  let now = 0;
  const turns = new DeployTurns({ now: () => now });
  const loop = (asker: Asker) =>
    turns
      .run(asker, async () => {
        now += 1_000;
        return await refused();
      })
      .then(
        () => 0,
        (error: Problem) => Number(error.headers['retry-after'] ?? 0),
      );
  const waits: number[] = [];
  for (let index = 0; index < 13; index++) waits.push(await loop(stranger('w')));
  expect(waits.slice(0, 11)).toEqual(Array(11).fill(0));
  const wait = waits[11] ?? 0;
  expect(wait).toBeGreaterThan(5);
  now += wait * 1_000;
  expect(await loop(stranger('w'))).toBe(0);
  expect(await loop(stranger('w'))).toBeGreaterThan(5);
  // Other wallets of the address: soon it is the address that waits, and nobody else.
  let served = 0;
  for (let index = 0; index < 100; index++) if ((await loop(stranger(`w${index}`))) === 0) served++;
  expect(served).toBeLessThan(30);
  expect(await loop(stranger('honest', '198.51.100.7'))).toBe(0);
  expect(await loop(owner('honest owner'))).toBe(0);
});

test('code that was accepted and is not paid for counts, too; what the host is to blame for does not', async () => {
  let now = 0;
  const turns = new DeployTurns({ now: () => now });
  const accepted = async () => {
    const { spentMs } = await turns.run(stranger('w'), async () => {
      now += 3_000;
    });
    turns.wasted(stranger('w'), spentMs);
  };
  for (let n = 0; n < 4; n += 1) await accepted();
  await expect(accepted()).rejects.toMatchObject({ code: 'rate_limited' });
  const busy = turns.run(stranger('v'), async () => {
    now += 60_000;
    throw new Problem('overloaded', 'The host is too busy.');
  });
  await expect(busy).rejects.toMatchObject({ code: 'overloaded' });
  await expect(turns.run(stranger('v'), async () => 'well')).resolves.toMatchObject({ result: 'well' });
});

test('what a full disk refuses counts against nobody', async () => {
  let now = 0;
  const turns = new DeployTurns({ now: () => now });
  const full = () =>
    turns.run(owner('w'), async () => {
      now += 60_000;
      throw Object.assign(new Error('no space left on device'), { code: 'ENOSPC' });
    });
  await expect(full()).rejects.toThrow('no space');
  await expect(full()).rejects.toThrow('no space');
  expect((await turns.run(owner('w'), async () => 'made')).result).toBe('made');
});
