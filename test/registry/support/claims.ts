/** What counts once, in a registry of its own. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import type { Registry } from '../../../host/registry/index.ts';
import { Books } from '../../../host/registry/payments/books.ts';
import { PaymentKeys } from '../../../host/registry/payments/keys.ts';
import { ManualClock } from '../../../host/shared/clock.ts';
import { openTestRegistry } from './open.ts';

export interface OpenClaims {
  registry: Registry;
  keys: PaymentKeys;
  close(): void;
}

export async function openClaims(): Promise<OpenClaims> {
  const folder = mkdtempSync(path.join(tmpdir(), 'claims-'));
  const registry = await openTestRegistry(path.join(folder, 'registry.db'));
  return {
    registry,
    keys: new PaymentKeys(new Books(registry, new ManualClock(Date.now()))),
    close() {
      registry.close();
      rmSync(folder, { recursive: true });
    },
  };
}
