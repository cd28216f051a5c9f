import { describe, expect, test } from 'vitest';
import { Allowance } from '../../host/egress/allowance.ts';
import { incoming, outgoing } from '../../host/egress/headers.ts';
import { Problem } from '../../host/shared/problem.ts';

const never = new AbortController().signal;
const limits = { inFlight: 2, bytesPerHour: 1_000, timeoutMs: 1_000 };

describe('requests in flight', () => {
  test('the third waits until one of the first two leaves', async () => {
    const allowance = new Allowance(limits, () => 0);
    const order: string[] = [];
    const first = await allowance.enter(never);
    await allowance.enter(never);
    const third = allowance.enter(never).then(() => order.push('third entered'));
    order.push('first leaves');
    first();
    first();
    await third;
    expect(order).toEqual(['first leaves', 'third entered']);
    expect(allowance.counters.inFlight).toBe(2);
  });

  test('whoever gives up waiting leaves no trace', async () => {
    const allowance = new Allowance(limits, () => 0);
    const leaves = [await allowance.enter(never), await allowance.enter(never)];
    const impatient = new AbortController();
    const waiting = allowance.enter(impatient.signal);
    impatient.abort(new Problem('egress_timeout', 'late'));
    await expect(waiting).rejects.toMatchObject({ code: 'egress_timeout' });
    for (const leave of leaves) leave();
    expect(allowance.counters.inFlight).toBe(0);
    await allowance.enter(never);
    expect(allowance.counters.inFlight).toBe(1);
  });

  test('a flood is refused once many wait', async () => {
    const allowance = new Allowance(limits, () => 0);
    const all = Array.from({ length: 23 }, () => allowance.enter(never));
    await expect(all[22]).rejects.toMatchObject({ code: 'egress_limit', status: 429 });
  });
});

describe('bytes in an hour', () => {
  test('roll out after sixty minutes, not before', () => {
    let now = 0;
    const allowance = new Allowance(limits, () => now);
    expect(allowance.count('in', 600)).toBe(true);
    now = 30 * 60_000;
    expect(allowance.count('out', 400)).toBe(false);
    now = 59 * 60_000;
    expect(() => allowance.assertBytesLeft()).toThrow(Problem);
    now = 60 * 60_000;
    expect(() => allowance.assertBytesLeft()).not.toThrow();
    expect(allowance.count('in', 599)).toBe(true);
    expect(allowance.count('in', 1)).toBe(false);
    now = 200 * 60_000;
    expect(allowance.count('in', 999)).toBe(true);
    expect(allowance.counters).toMatchObject({ bytesIn: 2_199, bytesOut: 400 });
  });
});

describe('headers', () => {
  test('hop-by-hop and internal ones do not leave; the others do, in order', () => {
    const raw = [
      'A',
      '1',
      'Connection',
      'close, X-Hop',
      'x-hop',
      '2',
      'X-Payer',
      'did:pkh:eip155:1:0x0',
      'a',
      '3',
      'X-Turnpike-Context',
      'e30',
      'Proxy-Authorization',
      'x',
      'X-Pay-Account',
      'acc',
      'Host',
      'evil',
      'TE',
      'x',
    ];
    expect(outgoing(raw, 'example.com')).toEqual(['host', 'example.com', 'A', '1', 'a', '3', 'X-Pay-Account', 'acc']);
  });

  test('answers keep repeated headers apart', () => {
    expect(incoming(['Set-Cookie', 'a=1', 'Transfer-Encoding', 'chunked', 'Set-Cookie', 'b=2'])).toEqual([
      'Set-Cookie',
      'a=1',
      'Set-Cookie',
      'b=2',
    ]);
  });
});
