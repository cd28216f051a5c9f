/** The gateway always has a key to sign with, whatever the clock did. */
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { migrate } from '../../builtin-tenants/kit/migrate.ts';
import { MIGRATIONS } from '../../builtin-tenants/pay/src/database/migrations.ts';
import { SigningKeys } from '../../builtin-tenants/pay/src/gateway/signing-keys.ts';
import { type MemoryDatabase, memoryDatabase } from '../deals/support/memory-database.ts';

const DAY = 86_400_000;
const CENTURY = 36_500 * DAY;
// workerd has these of ECMAScript; Node 24 does not yet.
Object.assign(Uint8Array, { fromBase64: (text: string) => new Uint8Array(Buffer.from(text, 'base64url')) });
Object.assign(Uint8Array.prototype, {
  toBase64(this: Uint8Array, { alphabet = 'base64' }: { alphabet?: BufferEncoding } = {}) {
    return Buffer.from(this).toString(alphabet);
  },
});
let db: MemoryDatabase;

beforeEach(async () => {
  db = memoryDatabase();
  await migrate(db, MIGRATIONS);
});
afterEach(() => {
  vi.useRealTimers();
  db.close();
});

test('a key that was made while the clock was ahead does not keep the next from being made', async () => {
  const now = Date.now();
  await new SigningKeys(db, 'secret').rotate(now);
  await new SigningKeys(db, 'secret').rotate(now + CENTURY);
  await new SigningKeys(db, 'secret').rotate(now);
  const { kid } = await new SigningKeys(db, 'secret').present();
  vi.setSystemTime(now + 8 * DAY);
  const later = new SigningKeys(db, 'secret');
  await later.rotate();
  expect((await later.present()).kid).not.toBe(kid);
  expect((await later.directory()).keys.map((key) => key.kid)).not.toContain(kid);
});

test('two processes that make the first key at once make one', async () => {
  const processes = Array.from({ length: 5 }, () => new SigningKeys(db, 'secret'));
  expect(new Set((await Promise.all(processes.map((keys) => keys.present()))).map(({ kid }) => kid)).size).toBe(1);
});
