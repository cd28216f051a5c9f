/**
 * The secret that binds challenges and owner tokens to this host: 32 random bytes in `<data>/payments.key` (0600).
 * Losing it only makes challenges that are still out unusable.
 */
import { createHmac, randomBytes } from 'node:crypto';
import { chmod, open, readFile } from 'node:fs/promises';
import path from 'node:path';

export interface PaymentsKey {
  /** For mppx: at least 32 bytes of text. */
  challengeKey: string;
  /** A key for another purpose, derived from the same secret. */
  derive(purpose: string): Buffer;
}

/** @param folder data folder; the file is created at first use */
export async function openPaymentsKey(folder: string): Promise<PaymentsKey> {
  const secret = await readOrCreate(path.join(folder, 'payments.key'));
  const derive = (purpose: string) => createHmac('sha256', secret).update(purpose).digest();
  return { challengeKey: derive('mpp-challenge').toString('hex'), derive };
}

async function readOrCreate(file: string): Promise<Buffer> {
  try {
    const handle = await open(file, 'wx', 0o600);
    try {
      const secret = randomBytes(32);
      await handle.writeFile(secret.toString('base64'));
      await handle.sync();
      return secret;
    } finally {
      await handle.close();
    }
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
  }
  await chmod(file, 0o600);
  const secret = Buffer.from(await readFile(file, 'utf8'), 'base64');
  if (secret.length !== 32) throw new Error('payments.key is damaged; restore it from a backup or remove it');
  return secret;
}
