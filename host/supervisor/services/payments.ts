/** The payment network and payments. Tenants are served first: loading this code takes most of a start. */
import { readContext } from '../../control/edge-context.ts';
import { asPage } from '../../control/pages/problem.ts';
import { loadPayments } from '../../payments/load.ts';
import type { Network } from '../../payments/network/index.ts';
import { consolePlace } from '../../shared/console-place.ts';
import { service } from '../service.ts';
import { tenantsFirst } from '../tenants-first.ts';
import { clock, metrics, publicUrl, stores, tally, trustedClock } from './base.ts';
import { edgeProcesses } from './edge-processes.ts';
import { config, folders, log } from './given.ts';
import { instanceClient, others, paymentsLater, runtime } from './instances.ts';

const paymentsCode = service({
  name: 'code of payments',
  needs: { runtime, edgeProcesses, paymentsLater },
  start: ({ runtime, paymentsLater }) => loadPayments(tenantsFirst(runtime, paymentsLater)),
});

export const network = service({
  name: 'payment network',
  needs: { config, folders, stores, clock, log, paymentsCode },
  start: ({ config, folders, stores: { keyFiles }, clock, log, paymentsCode }): Promise<Network> =>
    paymentsCode.openNetwork({ config, dataFolder: folders.data, keyFiles, clock, log }),
  stop: (network) => network.close(),
});

export const payments = service({
  name: 'payments',
  needs: {
    config,
    network,
    stores,
    folders,
    publicUrl,
    clock,
    trustedClock,
    log,
    instanceClient,
    others,
    metrics,
    tally,
    paymentsCode,
    paymentsLater,
  },
  async start(values) {
    const { config, network, stores, folders, publicUrl, clock, trustedClock, log, instanceClient, metrics, tally } =
      values;
    const payments = await values.paymentsCode.createPayments({
      config: config.payments,
      network,
      registry: stores.registry,
      dataFolder: folders.data,
      keyFiles: stores.keyFiles,
      publicUrl,
      consoleUrl: consolePlace(publicUrl, config.baseDomain).url,
      clock,
      trustedClock,
      log,
      others: values.others,
      forward: (slug, request, headers, signal) =>
        instanceClient.forward(slug, request, readContext(request), headers, signal),
      openSocket: (slug, request, headers, signal) =>
        instanceClient.openSocket(slug, request, readContext(request), headers, signal),
      page: (answer, asked) => asPage({ home: publicUrl, network }, asked, answer),
      isBlocked: (wallet) => stores.blocks.hasWallet(wallet),
      onPayment(payment) {
        metrics.onPayment(payment);
        if (payment.outcome === 'charged') tally.onPayment(payment);
      },
    });
    values.paymentsLater.resolve(payments);
    return payments;
  },
});
