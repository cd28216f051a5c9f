/** In which order services start and stop, and what is left when one cannot start. */
import { setImmediate as turn } from 'node:timers/promises';
import { pino } from 'pino';
import { beforeEach, describe, expect, it } from 'vitest';
import { give, given, type Service, service, startServices } from '../../host/supervisor/service.ts';

const log = pino({ level: 'silent' });
let seen: string[];
beforeEach(() => {
  seen = [];
});

/** Takes some turns of the event loop to start. */
function part(name: string, needs: Record<string, Service<string>> = {}, turns = 1): Service<string> {
  return service({
    name,
    needs,
    async start(values) {
      seen.push(`${name} begins`);
      for (let n = 0; n < turns; n += 1) await turn();
      seen.push(`${name} is there`);
      return `${name}(${Object.values(values).join(' ')})`;
    },
    stop: async () => {
      await turn();
      seen.push(`${name} ends`);
    },
  });
}

describe('services', () => {
  it('start once all that they need is there, side by side, once each, and stop in reverse', async () => {
    const base = part('base');
    const slow = part('slow', { base }, 5);
    const quick = part('quick', { base });
    const root = part('root', { slow, quick });
    const { value, stop } = await startServices(root, [], log);
    expect(value).toBe('root(slow(base()) quick(base()))');
    expect(seen).toEqual([
      'base begins',
      'base is there',
      'slow begins',
      'quick begins',
      'quick is there',
      'slow is there',
      'root begins',
      'root is there',
    ]);
    seen = [];
    await stop();
    await stop();
    expect(seen).toEqual(['root ends', 'slow ends', 'quick ends', 'base ends']);
  });

  it('get what was given, and say so when it was not', async () => {
    const port = given<number>('port');
    const root = service({ name: 'root', needs: { port }, start: ({ port }) => port + 1 });
    expect((await startServices(root, [give(port, 1)], log)).value).toBe(2);
    await expect(startServices(root, [], log)).rejects.toThrow('port was not given');
  });

  it('are all stopped when one cannot start, also one that is starting just then', async () => {
    const base = part('base');
    const slow = part('slow', { base }, 5);
    const later = part('later', { slow });
    const broken = service({
      name: 'broken',
      needs: { base },
      start(): string {
        throw new Error('the port is taken');
      },
      stop: () => seen.push('broken ends'),
    });
    await expect(startServices(part('root', { later, broken }), [], log)).rejects.toThrow('the port is taken');
    expect(seen).toEqual(['base begins', 'base is there', 'slow begins', 'slow is there', 'slow ends', 'base ends']);
  });

  it('that do not stop cleanly are reported, and keep no other from stopping', async () => {
    const lines: string[] = [];
    const base = part('base');
    const broken = service({
      name: 'broken',
      needs: { base },
      start: () => 'x',
      stop() {
        throw new Error('no');
      },
    });
    const { stop } = await startServices(
      broken,
      [],
      pino({ base: null }, { write: (line: string) => lines.push(line) }),
    );
    await stop();
    expect(lines.join()).toContain('"service":"broken"');
    expect(seen.at(-1)).toBe('base ends');
  });
});
