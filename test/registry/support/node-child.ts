/**
 * A node that sells and pays out until it is killed. Says who it is; then, of each payment, how much its seller is owed,
 * once that is written.
 */
import { setTimeout as delay } from 'node:timers/promises';
import pino from 'pino';
import { EvmLanes } from '../../../host/payments/methods/x402/evm-lanes.ts';
import { MONEY, Sender } from '../../../host/payments/outgoing/sender.ts';
import { openWallets } from '../../../host/payments/outgoing/wallets.ts';
import { Debts } from '../../../host/registry/payments/debts.ts';
import { openPostgresRegistry } from '../../../host/registry/postgres/index.ts';
import { ZERO } from '../../../host/shared/money.ts';
import { deliver, paymentsOn } from './paying.ts';
import { networkAt, soldBy } from './strict-chain.ts';

const [url = '', chain = '', name = '', leaseMs = '', seller = ''] = process.argv.slice(2);
const registry = await openPostgresRegistry(url, { leaseMs: Number(leaseMs) });
const store = paymentsOn(registry);
const network = networkAt(chain);
const sender = new Sender({
  store,
  wallets: openWallets(network, (x402) => new EvmLanes(x402, registry.leases)),
  log: pino({ level: 'silent' }),
  maySend: () => true,
  debts: new Debts(store.books, () => {}),
  minPayout: ZERO,
});
const say = (line: string) => process.stdout.write(`${line}\n`);
await registry.leases.keep(MONEY, { gained: async () => void say('gained'), lost: () => void say('lost') });
say(`node ${registry.node}`);
for (let at = 0; ; at++) {
  // Another took over while it was stopped: its next payments are its own again.
  await deliver(store, `${name} ${at}`, soldBy(seller)).then(
    (row) => say(`delivered ${row.authorized}`),
    () => undefined,
  );
  await sender.run();
  await delay(1);
}
