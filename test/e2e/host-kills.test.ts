/** The supervisor, the edge, instances and the chain are killed at random while tenants pay for deploys. */
import { rmSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { commandOf, processTree } from '../bench/processes.ts';
import { account, balances, jsonPost, mppFetch } from './support/callers.ts';
import { startHost } from './support/host.ts';
import { until } from './support/until.ts';

const TURNS = Number(process.env.KILL_TURNS ?? 6);
const hello = (text: string) => `export default { fetch: () => new Response(${JSON.stringify(text)}) }`;

describe('kills during deploys', () => {
  it('leave every paid deploy live and no unpaid one', async () => {
    let host = await startHost();
    try {
      const payer = account(host.network, 0).address;
      const before = (await balances(host.network, payer)).mpp;
      const outcomes = new Map<string, boolean>();
      let seed = 20_261_121;
      const random = (below: number) => {
        seed = (Math.imul(seed, 1_103_515_245) + 12_345) >>> 0;
        return seed % below;
      };
      const victims = ['supervisor', 'edge', 'workerd', 'anvil'];
      for (let turn = 0; turn < TURNS; turn++) {
        const pay = mppFetch(host.network, 0);
        const slugs = Array.from({ length: 8 }, (_, index) => `kill-${turn}-${index}`);
        const calls = slugs.map(async (slug) => {
          const response = await pay(`${host.url}/_admin/deploy`, jsonPost({ slug, code: hello(slug) })).catch(
            () => undefined,
          );
          if (response) await response.text().catch(() => '');
          outcomes.set(slug, response?.status === 201);
        });
        const victim = victims[turn % victims.length] ?? 'edge';
        // A moment between the start of the calls and their usual end, drawn from the seed.
        await new Promise((resolve) => setTimeout(resolve, random(250)));
        if (victim === 'supervisor') await host.kill();
        else {
          const pattern = { edge: /host\/edge\/main/, workerd: /workerd serve/, anvil: /anvil/ }[victim] ?? /never/;
          for (const pid of processTree([host.pid])) {
            if (pid !== host.pid && pattern.test(commandOf(pid))) {
              try {
                process.kill(pid, 'SIGKILL');
              } catch {
                // It ended by itself meanwhile.
              }
            }
          }
        }
        await Promise.all(calls);
        if (victim === 'supervisor') host = await host.restart();
      }
      // Whatever was in flight has been finished or given up by now.
      await until(async () => {
        const { json } = await host.operator('GET', '/payments');
        return ((json as { open: unknown[] }).open ?? []).length === 0 ? true : undefined;
      });
      let live = 0;
      for (const slug of outcomes.keys()) {
        const response = await until(async () => {
          const answer = await fetch(`${host.url}/${slug}/`).catch(() => undefined);
          return answer && answer.status !== 503 ? answer : undefined;
        });
        const text = await response.text();
        if (response.status === 200) {
          expect(text).toBe(slug);
          live += 1;
        } else {
          expect(response.status).toBe(404);
          expect(outcomes.get(slug), `${slug} was answered 201 and is not live`).toBe(false);
        }
      }
      const paid = before - (await balances(host.network, payer)).mpp;
      expect(paid).toBe(BigInt(live) * 200_000n);
      // How many end before their kill is a matter of how busy the machine is.
      expect(live).toBeGreaterThan(0);
    } finally {
      await host.stop();
      rmSync(host.data, { recursive: true, force: true });
    }
  });
});
