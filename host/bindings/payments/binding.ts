/** `env.PAYMENTS`: prices that are known at run time only. */
import { type Binding, named } from '../binding.ts';

export const payments: Binding = {
  key: 'payments',
  env: 'PAYMENTS',
  summary: 'prices known at run time',
  settings: named,
  server: async () => (await import('./server.ts')).paymentsServer,
  workerd: {
    wholeUrls: false,
    write: (binding, { service }) => binding.initService().setName(service),
  },
};
