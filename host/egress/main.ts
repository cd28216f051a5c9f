/**
 * The egress process: tenants' only way to the network. It is composed here from the `init` call of the supervisor,
 * and ends with it.
 */
import { flushCompileCache } from 'node:module';
import pino from 'pino';
import { Channel } from '../shared/channel.ts';
import type {
  ControlForEgress,
  EgressCounters,
  EgressInit,
  EgressMethods,
  EgressTenant,
  TenantId,
} from '../shared/contracts.ts';
import { metric } from '../shared/metric.ts';
import { Problem } from '../shared/problem.ts';
import { Notices } from './notices.ts';
import { type ProxyDeps, TenantProxy } from './proxy.ts';
import { CheckedResolver } from './resolver.ts';
import { Authorities } from './secure.ts';

const log = pino({ name: 'egress' }, pino.destination({ dest: 2, sync: true }));

/** Builds the methods of the process. `tell` reports notices to the supervisor. */
function createEgress(tell: (notices: Parameters<ControlForEgress['notices']>[0]) => void): EgressMethods {
  const proxies = new Map<TenantId, TenantProxy>();
  const opening = new Map<TenantId, Promise<void>>();
  let deps: ProxyDeps | undefined;

  const requests = new Map<string, number>();
  const past = { bytesIn: 0, bytesOut: 0 };
  const sum = (pick: (counters: EgressCounters) => number) =>
    [...proxies.values()].reduce((total, { allowance }) => total + pick(allowance.counters), 0);

  async function open(settings: EgressTenant): Promise<void> {
    if (!deps) throw new Problem('not_ready', 'The egress was not initialised.');
    const known = proxies.get(settings.tenant);
    if (known && known.socket === settings.socket) return known.update(settings);
    if (known) await closeTenant(settings.tenant);
    const proxy = new TenantProxy(settings, deps);
    await proxy.listen();
    proxies.set(settings.tenant, proxy);
  }

  async function closeTenant(tenant: TenantId): Promise<void> {
    const proxy = proxies.get(tenant);
    if (!proxy) return;
    proxies.delete(tenant);
    past.bytesIn += proxy.allowance.counters.bytesIn;
    past.bytesOut += proxy.allowance.counters.bytesOut;
    await proxy.close();
  }

  /** Calls for one tenant run one after the other: a close overtaken by an open would take its socket away. */
  function inTurn(tenant: TenantId, work: () => Promise<void>): Promise<void> {
    const turn = (opening.get(tenant) ?? Promise.resolve()).then(work, work);
    opening.set(tenant, turn);
    const forget = () => {
      if (opening.get(tenant) === turn) opening.delete(tenant);
    };
    turn.then(forget, forget);
    return turn;
  }

  return {
    init(init: EgressInit) {
      deps = {
        surroundings: { ...init, edgeTlsAddress: init.edgeTlsAddress },
        resolver: new CheckedResolver(init.dnsServers ?? []),
        notices: new Notices(tell),
        authorities: new Authorities(init.extraAuthority),
        finished: (result) => requests.set(result, (requests.get(result) ?? 0) + 1),
        failed: (error) => log.error({ err: error }, 'outbound request failed unexpectedly'),
      };
    },
    open: (settings) => inTurn(settings.tenant, () => open(settings)),
    close: ({ tenant }) => inTurn(tenant, () => closeTenant(tenant)),
    counters: ({ tenant }) =>
      proxies.get(tenant)?.allowance.counters ?? { requests: 0, refused: 0, bytesIn: 0, bytesOut: 0, inFlight: 0 },
    setClock() {
      // Nothing here follows business time: time limits and the rolling hour are real.
    },
    metrics: () => [
      metric(
        'counter',
        'turnpike_egress_requests_total',
        'Outbound requests of handlers by result',
        [...requests].map(([result, value]) => ({ labels: { result }, value })),
      ),
      metric(
        'gauge',
        'turnpike_egress_in_flight',
        'Outbound requests of handlers in flight',
        sum(({ inFlight }) => inFlight),
      ),
      metric('counter', 'turnpike_egress_bytes_total', 'Bytes between handlers and the outside', [
        { labels: { direction: 'in' }, value: past.bytesIn + sum(({ bytesIn }) => bytesIn) },
        { labels: { direction: 'out' }, value: past.bytesOut + sum(({ bytesOut }) => bytesOut) },
      ]),
    ],
  };
}

process.on('disconnect', () => process.exit(0));
const control: Channel<ControlForEgress> = new Channel<ControlForEgress>(
  process,
  createEgress((notices) => control.notify('notices', notices)),
);

// For the next start: all code is loaded by now.
flushCompileCache();
