/** Makes the servers of all bindings that have one. */
import { BINDINGS } from './index.ts';
import type { BindingServer, BindingServers, ServerHost } from './server.ts';

export async function openBindingServers(host: ServerHost): Promise<BindingServers> {
  const servers = new Map<string, BindingServer>();
  for (const { key, server } of BINDINGS) {
    const made = (await server?.())?.(host);
    if (made) servers.set(key, made);
  }
  return servers;
}
