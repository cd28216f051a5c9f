import { expect, test } from 'vitest';
import { PaymentService } from '../../host/payments/bindings/service.ts';

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
