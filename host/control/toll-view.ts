/** What the toll has to know of a deployment. */
import type { TollDeployment } from '../payments/types.ts';
import type { Deployment } from '../registry/schema/deployments.ts';

const views = new WeakMap<Deployment, TollDeployment>();

export function tollView(deployment: Deployment): TollDeployment {
  const known = views.get(deployment);
  if (known) return known;
  const view = {
    slug: deployment.slug,
    tenant: deployment.tenant,
    payTo: deployment.payTo as TollDeployment['payTo'],
    paidRoutes: deployment.paidRoutes as unknown as TollDeployment['paidRoutes'],
  };
  views.set(deployment, view);
  return view;
}
