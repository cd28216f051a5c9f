import { pino } from 'pino';
import { describe, expect, test } from 'vitest';
import type { Deployments } from '../../host/registry/deployments.ts';
import type { Domains } from '../../host/registry/domains.ts';
import type { Deployment } from '../../host/registry/schema/deployments.ts';
import { ManualClock } from '../../host/shared/clock.ts';
import { OtherNodes } from '../../host/supervisor/other-nodes.ts';

interface Row {
  slug: string;
  version: number;
  state: string;
  suspendedAt: number | null;
}

/** A node whose registry, edges and instances are lists. */
class Node {
  readonly rows = new Map<string, Row>();
  /** What was done, in its order. */
  readonly did: string[] = [];
  /** By slug; an activation of it takes until that settles. */
  readonly slow = new Map<string, Promise<void>>();
  /** Edges cannot be told of it so often. */
  readonly failing = new Map<string, number>();
  readonly behind = new Map<string, Promise<unknown>>();
  readonly others = new OtherNodes({
    deployments: {
      routable: async () =>
        [...this.rows.values()].map((row) => ({ ...row, tenant: `t-${row.slug}` }) as unknown as Deployment),
      versions: { previews: async () => new Map() },
    } as unknown as Deployments,
    domains: { servable: async () => new Map() } as unknown as Domains,
    clock: new ManualClock(0),
    changes: { behind: (slug, work) => void this.behind.set(slug, work) },
    routes: {
      tell: async (slug) => {
        const left = this.failing.get(slug) ?? 0;
        this.failing.set(slug, left - 1);
        if (left > 0) throw new Error('the registry does not answer');
        this.did.push(`route ${slug} ${this.rows.get(slug)?.version}`);
      },
    },
    runtime: {
      activate: async (slug) => {
        await this.slow.get(slug);
        this.did.push(`instance ${slug} ${this.rows.get(slug)?.version}`);
      },
      endPreviews: () => undefined,
      stop: async (slug) => void this.did.push(`stop ${slug}`),
    },
    changesHere: () => false,
    log: pino({ level: 'silent' }),
  });

  put(slug: string, version: number, more: Partial<Row> = {}): void {
    this.rows.set(slug, { slug, version, state: 'active', suspendedAt: null, ...more });
  }
}

describe('what other nodes changed', () => {
  test('is in service here: the instance first, then the route, and each change once', async () => {
    const node = new Node();
    node.put('one', 1);
    node.put('two', 1);
    await node.others.begin();
    node.put('one', 2);
    node.rows.delete('two');
    await Promise.all([node.others.sync(), node.others.sync()]);
    await node.others.sync();
    expect(node.did.sort()).toEqual(['instance one 2', 'route one 2', 'route two undefined']);
    expect([...node.behind]).toEqual([]);
  });

  test('a deployment that starts slowly keeps no other waiting, and is told of as behind', async () => {
    const node = new Node();
    await node.others.begin();
    const started = Promise.withResolvers<void>();
    node.slow.set('slow', started.promise);
    node.put('slow', 1);
    node.put('quick', 1);
    await node.others.sync();
    expect(node.did).toEqual(['instance quick 1', 'route quick 1']);
    expect([...node.behind.keys()]).toEqual(['slow']);
    node.put('quick', 2);
    await node.others.sync();
    expect(node.did.slice(2)).toEqual(['instance quick 2', 'route quick 2']);
    const isLate = Symbol('late');
    const late = new Promise((resolve) => setImmediate(resolve, isLate));
    expect(await Promise.race([node.others.catchUp(), late])).toBe(isLate);
    // It is suspended at once, not when it has started.
    node.put('slow', 1, { suspendedAt: 1 });
    await node.others.sync();
    expect(node.did.slice(4)).toEqual(['route slow 1', 'stop slow']);
    started.resolve();
    await node.behind.get('slow');
    await node.others.sync();
    expect(node.did.slice(6)).toEqual(['instance slow 1', 'route slow 1']);
  });

  test('what fails is done again, also when nobody waits for it any more', async () => {
    const node = new Node();
    await node.others.begin();
    node.failing.set('one', 1);
    node.put('one', 1);
    await expect(node.others.sync()).rejects.toThrow('does not answer');
    await node.others.sync();
    expect(node.did.splice(0)).toEqual(['instance one 1', 'instance one 1', 'route one 1']);

    const started = Promise.withResolvers<void>();
    node.slow.set('one', started.promise);
    node.failing.set('one', 1);
    node.put('one', 2);
    await node.others.sync();
    started.resolve();
    await node.behind.get('one');
    expect(node.did).toEqual(['instance one 2', 'instance one 2', 'route one 2']);
  });
});
