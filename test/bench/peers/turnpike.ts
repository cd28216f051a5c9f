/** Ours: the real host, paid for by a test wallet, with one deployment for the row that is measured. */
import { deploy, mppFetch } from '../../e2e/support/callers.ts';
import { type HostOptions, startHost, type TestHost } from '../../e2e/support/host.ts';
import { until } from '../../e2e/support/until.ts';
import type { Starter, Subject } from '../subject.ts';

export interface TurnpikeSubject extends Subject {
  host: TestHost;
}

export async function startTurnpike(
  code: string,
  bindings: Record<string, unknown> = {},
  options: HostOptions & { deployment?: Record<string, unknown> } = {},
): Promise<TurnpikeSubject> {
  const host = await startHost({ ...options, flags: { 'log-level': 'error', ...options.flags } });
  const origin = `${host.url}/bench`;
  try {
    await deploy(mppFetch(host.network, 0), host.url, { slug: 'bench', code, bindings, ...options.deployment });
    await until(async () => ((await fetch(`${origin}/`)).status < 500 ? true : undefined));
  } catch (error) {
    await host.stop();
    throw error;
  }
  return { name: 'Turnpike', origin, host, pids: () => [host.pid], stop: () => host.stop() };
}

export function turnpike(
  code: string,
  bindings: Record<string, unknown> = {},
  options: HostOptions & { deployment?: Record<string, unknown> } = {},
): Starter {
  return {
    name: 'Turnpike',
    worker: { code, bindings },
    missing: () => undefined,
    start: () => startTurnpike(code, bindings, options),
  };
}
