/** The KV suite on this machine's disk. test/s3 runs the same on a cluster. */
import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { kvSuite } from './kv-suite.ts';
import { callSocket, StorageRig, TENANT } from './storage-rig.ts';

describe('KV on disk', () => kvSuite(async () => ({})));

test('what has expired is swept with its file', async () => {
  const rig = await StorageRig.start();
  try {
    const socket = join(rig.sockets, 'kv.sock');
    await callSocket(socket, '/fades?expiration_ttl=60', { method: 'PUT', body: Buffer.alloc(100_000) });
    const values = join(rig.root, TENANT, 'kv', 'values');
    expect(readdirSync(values)).toHaveLength(1);
    await rig.channel.call('setClock', { offsetMs: 61_000 });
    await expect.poll(() => readdirSync(values)).toEqual([]);
  } finally {
    await rig.stop();
  }
});
