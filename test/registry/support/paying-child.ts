/** Begins and answers payments until it is killed. Says which one it has begun, or answered, once that is written. */
import { openPostgresRegistry } from '../../../host/registry/postgres/index.ts';
import { newPayment, paymentsOn } from './paying.ts';

const [url = '', name = ''] = process.argv.slice(2);
const store = paymentsOn(await openPostgresRegistry(url));
for (let at = 0; ; at++) {
  let row = await store.begin(newPayment(`${name}-${at}`), 'working', undefined);
  row = await store.settling(row, { charged: row.authorized });
  row = await store.settled(row, `0x${row.id}`, row.authorized, '{}');
  await store.answered(row, undefined, false);
  process.stdout.write(`${row.id}\n`);
}
