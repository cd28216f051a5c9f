/** Serves `env.PAYMENTS` where the host has payments; service.ts answers the calls. */
import type { BindingServer, ServerHost } from '../server.ts';

export function paymentsServer({ payments }: ServerHost): BindingServer | undefined {
  if (!payments) return undefined;
  return {
    serve: ({ tenant, slug, socket, permit }) => ({
      // Each time: who is paid may have changed.
      async open() {
        await payments.open({ tenant, slug, socket });
        permit();
      },
      close: () => payments.close({ tenant, slug }),
    }),
  };
}
