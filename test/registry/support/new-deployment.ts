/** A deployment as the registry takes it, with nothing special about it. */
import { DAY_MS, type NewDeployment, newTenantId } from '../../../host/registry/deployments.ts';

export function newDeployment({
  settings,
  ...rest
}: Omit<Partial<NewDeployment>, 'settings'> & { settings?: Partial<NewDeployment['settings']> } = {}): NewDeployment {
  const owner = rest.owner ?? '0xa';
  return {
    tenant: newTenantId(),
    slug: 'hello',
    owner,
    ownerDid: `did:pkh:eip155:1337:${owner}`,
    code: { digest: 'd1', bytes: 10, handlers: ['fetch'] },
    settings: {
      compatibilityDate: '2026-11-01',
      compatibilityFlags: [],
      vars: {},
      assets: null,
      bindings: { kv: false, d1: false, r2: false, payments: false },
      crons: [],
      paidRoutes: [],
      payTo: owner,
      notify: null,
      ...settings,
    },
    secrets: [],
    termMs: 30 * DAY_MS,
    ...rest,
  };
}
