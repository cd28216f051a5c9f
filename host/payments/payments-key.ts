/**
 * The secret that binds challenges and owner tokens to this host: 32 random bytes in `<data>/payments.key` (0600), or the
 * one that all nodes of the host have. Losing it only makes challenges that are still out unusable.
 */
import { createHmac, randomBytes } from 'node:crypto';
import type { KeyFile } from '../registry/key-file.ts';

export interface PaymentsKey {
  /** For mppx: at least 32 bytes of text. */
  challengeKey: string;
  /** A key for another purpose, derived from the same secret. */
  derive(purpose: string): Buffer;
}

/** @param file made at first use */
export async function openPaymentsKey(file: KeyFile): Promise<PaymentsKey> {
  const text = (await file.read()) ?? (await file.add(randomBytes(32).toString('base64')));
  const secret = Buffer.from(text, 'base64');
  if (secret.length !== 32) throw new Error('payments.key is damaged; restore it from a backup or remove it');
  const derive = (purpose: string) => createHmac('sha256', secret).update(purpose).digest();
  return { challengeKey: derive('mpp-challenge').toString('hex'), derive };
}
