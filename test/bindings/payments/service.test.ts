import { expect, test } from 'vitest';
import { PaymentService } from '../../../host/payments/payment-service.ts';

test('env.PAYMENTS does not read more than it takes', async () => {
  const service = new PaymentService({ log: console } as never);
  let sent = 0;
  const body = new ReadableStream({
    pull(controller) {
      if (sent >= 64 * 1024 * 1024) return controller.close();
      sent += 65536;
      controller.enqueue(new Uint8Array(65536).fill(32));
    },
  });
  const request = new Request('http://x/capture', { method: 'POST', body, duplex: 'half' } as never);
  const _response = await service.app({ tenant: 't', slug: 's', payTo: '0x0' }).fetch(request);
  expect(sent).toBeLessThan(1024 * 1024);
});

test.each([
  [{ state: 'working' }, 'open'],
  [{ state: 'settling' }, 'open'],
  // Taken before the work is done: it may still go back.
  [{ state: 'settled', charged: null }, 'open'],
  [{ state: 'settled' }, 'open'],
  [{ state: 'answered' }, 'charged'],
  [{ state: 'answered', charged: 0n }, 'unpaid'],
  [{ state: 'released' }, 'unpaid'],
  [{ state: 'refund_owed' }, 'unpaid'],
  [{ state: 'refunded' }, 'unpaid'],
  // The same credential was released and pays for a later call.
  [{ state: 'answered', attempts: 2 }, 'unpaid'],
  [{ state: 'working', attempts: 2 }, 'unpaid'],
  [{ state: 'answered', tenant: 'other' }, undefined],
  [{ state: 'answered', kind: 'binding' }, undefined],
])('env.PAYMENTS says what became of a call of a paid route: %o, %s', async (part, outcome) => {
  const row = { id: 'p1', kind: 'route', tenant: 't', attempts: 1, charged: 5n, ...part };
  const machine = { store: { byId: async () => row } };
  const service = new PaymentService({ machine, log: console } as never);
  const body = JSON.stringify({ payment: 'p1', attempt: 1 });
  const answer = await service
    .app({ tenant: 't', slug: 's', payTo: '0x0' })
    .fetch(new Request('http://x/outcome', { method: 'POST', body }));
  expect(answer.status).toBe(outcome === undefined ? 404 : 200);
  if (outcome !== undefined) expect(await answer.json()).toEqual({ payment: 'p1', outcome });
});
