import { type Duplex, duplexPair, Readable } from 'node:stream';
import { describe, expect, test } from 'vitest';
import { Questions } from '../../host/peers/questions.ts';
import { JointUpdates } from '../../host/runtime/joint-updates.ts';
import { NO_OTHERS } from '../../host/shared/others.ts';

const SLUG = 'error';
const WAIT_MS = 1_000;

/** Nodes that reach each other. */
class Nodes {
  readonly #all: Questions[] = [];
  readonly #streams: Duplex[] = [];

  /** @param serving the version of the slug that runs there; it may change */
  add(serving: { revision?: string } = {}): JointUpdates {
    const number = this.#all.length;
    const questions = new Questions({
      own: String(number),
      peers: () =>
        this.#all.map((_, peer) => ({ number: peer, name: String(peer) })).filter((peer) => peer.number !== number),
      dial: (node, purpose) => {
        const [near, far] = duplexPair();
        this.#streams.push(near, far);
        // As the ends of a connection.
        near.once('close', () => far.destroy());
        far.once('close', () => near.destroy());
        if (!this.#all[node]?.receive(JSON.parse(purpose), far, number)) far.destroy();
        return near;
      },
    });
    this.#all.push(questions);
    return new JointUpdates(questions, () => serving.revision);
  }

  /** All connections break. */
  cut(): void {
    for (const stream of this.#streams) stream.destroy();
  }

  get open(): number {
    return this.#streams.filter(({ destroyed }) => !destroyed).length;
  }
}

/** Whether it settles while everything else that is due runs. */
async function settles(work: Promise<unknown>): Promise<boolean> {
  let settled = false;
  void work.then(() => {
    settled = true;
  });
  for (let turns = 0; turns < 50; turns++) await new Promise((resolve) => setImmediate(resolve));
  return settled;
}

describe('an update of objects on several nodes', () => {
  test('goes from step to step when all nodes are there', async () => {
    const nodes = new Nodes();
    const [a, b] = [nodes.add({ revision: 'old' }), nodes.add({ revision: 'old' })];
    const here = a.begin(SLUG, 'new');
    const ready = here.allReady();
    expect(await settles(ready)).toBe(false);
    const there = b.begin(SLUG, 'new');
    await Promise.all([ready, there.allReady()]);

    const quiet = here.allQuiet(true, WAIT_MS);
    expect(await settles(quiet)).toBe(false);
    expect(await Promise.all([quiet, there.allQuiet(true, WAIT_MS)])).toEqual([true, true]);

    const left = here.allLeft(WAIT_MS);
    expect(await settles(left)).toBe(false);
    await Promise.all([left, there.allLeft(WAIT_MS)]);
    for (const update of [here, there]) update.end();
    await expect.poll(() => nodes.open).toBe(0);
  });

  test('waits for no node that serves nothing, or the new version already', async () => {
    const nodes = new Nodes();
    const a = nodes.add({ revision: 'old' });
    nodes.add();
    nodes.add({ revision: 'new' });
    const update = a.begin(SLUG, 'new');
    await update.allReady();
    expect(await update.allQuiet(true, WAIT_MS)).toBe(true);
    await update.allLeft(WAIT_MS);
    update.end();
  });

  test('ends nothing anywhere while one node is busy', async () => {
    const nodes = new Nodes();
    const [a, b] = [nodes.add({ revision: 'old' }), nodes.add({ revision: 'old' })];
    const updates = [a, b].map((node) => node.begin(SLUG, 'new'));
    await Promise.all(updates.map((update) => update.allReady()));
    const all = await Promise.all(updates.map((update, index) => update.allQuiet(index === 0, WAIT_MS)));
    expect(all).toEqual([false, false]);
  });

  test('waits for no node that is at another update', async () => {
    const nodes = new Nodes();
    const [a, b] = [nodes.add({ revision: 'old' }), nodes.add({ revision: 'old' })];
    const [one, other] = [a.begin(SLUG, 'one'), b.begin(SLUG, 'other')];
    await Promise.all([one.allReady(), other.allReady()]);
  });

  test('waits no longer for a node that cannot be reached, or has given it up', async () => {
    const nodes = new Nodes();
    const [a, b] = [nodes.add({ revision: 'old' }), nodes.add({ revision: 'old' })];
    const update = a.begin(SLUG, 'new');
    const there = b.begin(SLUG, 'new');
    await update.allReady();
    const quiet = update.allQuiet(true, 60_000);
    there.end();
    expect(await quiet).toBe(true);
    const again = a.begin(SLUG, 'newer');
    const ready = again.allReady();
    expect(await settles(ready)).toBe(false);
    nodes.cut();
    await ready;
  });

  test('is followed by a node that asks when it has begun, and by one that asked before', async () => {
    const serving = { revision: 'old' };
    const nodes = new Nodes();
    const [a, b] = [nodes.add(serving), nodes.add({ revision: 'old' })];
    const there = b.begin(SLUG, 'new');
    const early = there.allReady();
    expect(await settles(early)).toBe(false);
    const here = a.begin(SLUG, 'new');
    await Promise.all([early, here.allReady()]);
    serving.revision = 'new';
    here.end();
    await there.allLeft(60_000);
  });

  test('waits no longer for a node whose old instance has ended', async () => {
    const serving: { revision?: string } = { revision: 'old' };
    const nodes = new Nodes();
    const [a, b] = [nodes.add(serving), nodes.add({ revision: 'old' })];
    const ready = b.begin(SLUG, 'new').allReady();
    expect(await settles(ready)).toBe(false);
    delete serving.revision;
    a.changed();
    await ready;
  });

  test('waits for no node that says more than there is to say', async () => {
    let read = 0;
    async function* endless() {
      for (;;) {
        read++;
        yield Buffer.alloc(65_536, 1);
      }
    }
    const others = { ...NO_OTHERS, names: () => ['hostile'], open: () => Readable.from(endless()) };
    const update = new JointUpdates(others, () => undefined).begin(SLUG, 'new');
    await update.allReady();
    expect(read).toBeLessThan(100);
  });
});
