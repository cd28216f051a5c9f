/**
 * What stands in for a deployment's objects, queues and workflows while the cluster's bucket is away: whoever calls them
 * hears that they cannot be reached, and all other code goes on. An instance that is a member of the cluster would end.
 */
import { POINTS_URL } from '../bindings/analytics/points-database.ts';
import { DATABASES_SERVICE } from '../bindings/d1/binding.ts';
import { MESSAGES } from '../bindings/d1/failure.ts';
import type { Objects } from '../bindings/durable-objects/classes.ts';
import { QUEUES_SERVICE } from '../bindings/queues/binding.ts';
import { WORKFLOW_API, WORKFLOWS_SERVICE } from '../bindings/workflows/binding.ts';
import type { Service, Worker_Binding } from '../capnp/generated/workerd.cjs';
import { SYSTEM_COMPATIBILITY_DATE } from './system-worker.ts';

const AWAY_SERVICE = 'objects-away';
const AWAY_CLASS = 'Away';

const SOURCE = `
import { DurableObject, WorkerEntrypoint } from 'cloudflare:workers';
const why = () => Object.assign(new Error('Objects, queues and workflows cannot be reached now; try again.'), { retryable: true });
export class ${AWAY_CLASS} extends DurableObject {
  constructor(ctx, env) { super(ctx, env); throw why(); }
}
class Entry extends WorkerEntrypoint {
  constructor(ctx, env) { super(ctx, env); throw why(); }
}
export class QueueControl extends Entry {}
export class WorkflowControl extends Entry {}
export class ${WORKFLOW_API} extends Entry {}
export default { fetch() { throw why(); } };
`;
/** The error of D1's API, and another status where data points are meant. */
const DATABASES = `export default {
  fetch: ({ url }) =>
    Response.json(${JSON.stringify({ success: false, error: MESSAGES.unreachable })}, { status: url.startsWith('${POINTS_URL}') ? 503 : 200 }),
};`;

/** How many services {@link writeAway} needs. */
export function awayServices(objects: Objects): number {
  return 1 + Number(objects.queues) + Number(objects.workflows.length > 0) + Number(objects.databases > 0);
}

/** @param next the next service that nobody has filled in */
export function writeAway(objects: Objects, next: () => Service): void {
  const names = [
    AWAY_SERVICE,
    ...(objects.queues ? [QUEUES_SERVICE] : []),
    ...(objects.workflows.length > 0 ? [WORKFLOWS_SERVICE] : []),
    ...(objects.databases > 0 ? [DATABASES_SERVICE] : []),
  ];
  for (const name of names) {
    const service = next();
    service.setName(name);
    const worker = service.initWorker();
    const module = worker.initModules(1).get(0);
    module.setName(`${name}.js`);
    module.setEsModule(name === DATABASES_SERVICE ? DATABASES : SOURCE);
    worker.setCompatibilityDate(SYSTEM_COMPATIBILITY_DATE);
    if (name !== AWAY_SERVICE) continue;
    const space = worker.initDurableObjectNamespaces(1).get(0);
    space.setClassName(AWAY_CLASS);
    space.setUniqueKey(AWAY_SERVICE);
    worker.getDurableObjectStorage().setInMemory();
  }
}

/** Points a binding of the tenant's at what stands in for its objects. */
export function pointAway(binding: Worker_Binding): void {
  const space = binding.getDurableObjectNamespace();
  space.setClassName(AWAY_CLASS);
  space.setServiceName(AWAY_SERVICE);
}
