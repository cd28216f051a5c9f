/** The storage process (KV and objects) and the egress process (outbound requests of tenants). */
import { X509Certificate } from 'node:crypto';
import { readFileSync } from 'node:fs';
import path from 'node:path';
import type { ControlForEgress, EgressMethods, StorageMethods } from '../../shared/contracts.ts';
import { Child } from '../child.ts';
import { egressInit, storageInit } from '../process-settings.ts';
import { service } from '../service.ts';
import { clock, logs, ownCallerKey, publicSocket, publicUrl } from './base.ts';
import { config, folders, log } from './given.ts';
import { tls } from './traffic.ts';

/** The identity under which the host itself calls out (notify webhooks). */
const OWN_EGRESS = 'host';

export const storage = service({
  name: 'storage',
  needs: { config, folders, clock, log },
  async start({ config, folders, clock, log }) {
    const child = new Child<StorageMethods>('storage', 'storage', log);
    await child.start({
      local: {},
      async setUp(channel) {
        await channel.call('init', storageInit(config, folders, clock.offsetMs));
      },
    });
    return child;
  },
  stop: (child) => child.stop(),
});

/** Socket by which the host itself calls out. */
export const ownEgressSocket = service({
  name: 'own egress socket',
  needs: { folders },
  start: ({ folders }) => path.join(folders.run, 'egress.sock'),
});

export const egress = service({
  name: 'egress',
  needs: { config, publicUrl, publicSocket, tls, clock, ownCallerKey, log, logs, ownEgressSocket },
  async start({ config, publicUrl, publicSocket, tls, clock, ownCallerKey, log, logs, ownEgressSocket }) {
    const authority = readAuthority(config.runtime.egressCaFile);
    const child = new Child<EgressMethods>('egress', 'egress', log);
    await child.start({
      local: {
        notices: async (notices) => {
          for (const { tenant, code, target, detail, count } of notices) {
            const text = `${detail}${count > 1 ? ` (${count} times)` : ''}`;
            await logs.append(tenant, { kind: 'platform', event: code, text: `${target}: ${text}` });
          }
        },
      } satisfies ControlForEgress,
      async setUp(channel) {
        // Ports of the host itself, which tenants reach by its name alone.
        const ports = [publicSocket.port, tls.socket?.port] as const;
        await channel.call('init', egressInit(config, publicUrl, ...ports, clock.offsetMs, ownCallerKey, authority));
        await channel.call('open', {
          tenant: OWN_EGRESS,
          slug: OWN_EGRESS,
          socket: ownEgressSocket,
          allow: [],
          limits: { inFlight: 20, bytesPerHour: 10_000_000, timeoutMs: 30_000 },
        });
      },
    });
    return child;
  },
  stop: (child) => child.stop(),
});

/** @throws Error that names the setting: without its authorities handlers would be refused later, one by one */
function readAuthority(file: string): string | undefined {
  if (file === '') return undefined;
  try {
    const text = readFileSync(file, 'utf8');
    new X509Certificate(text);
    return text;
  } catch (error) {
    throw new Error(`runtime.egressCaFile: ${file} is no PEM file of certificates (${(error as Error).message}).`);
  }
}
