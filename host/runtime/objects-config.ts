/**
 * The part of an instance's configuration that keeps state in it: Durable Objects, and the workers that workerd has built
 * in for queues and workflows. What their configuration has to be is written at the top of their modules, which are in
 * workerd's binary (`strings workerd | grep -A40 'bundled = "/workerd/queues.js"'`, 1.20261117.1).
 */
import { DATABASES_ID, DATABASES_SERVICE } from '../bindings/d1/binding.ts';
import type { Objects } from '../bindings/durable-objects/classes.ts';
import { REGION } from '../bindings/objects-bucket/credentials.ts';
import { BUCKET } from '../bindings/objects-bucket/request.ts';
import { QUEUES_SERVICE, queuesWorker } from '../bindings/queues/binding.ts';
import { WORKFLOW_API, WORKFLOWS_SERVICE, workflowsWorker } from '../bindings/workflows/binding.ts';
import type {
  Config,
  Service,
  Worker,
  Worker_Binding,
  Worker_DurableObjectNamespace,
} from '../capnp/generated/workerd.cjs';
import type { MemberConfig } from './cluster-member.ts';
import { SYSTEM_COMPATIBILITY_DATE } from './system-worker.ts';

/** workerd's own port for other members of its cluster, for a unix socket to lead to. */
export const PEERS_SERVICE = 'peers';
/**
 * From SIGTERM to the end of a member, ms: it gives its objects to others meanwhile. Below the time after which the host
 * kills it: what a killed one had is taken over only when its lease has run out.
 */
const STOP_MS = 4_000;

/** The disk of the objects. */
const DISK_SERVICE = 'objects';
/** Where queues keep their messages and what they are told, and workflows their lists. No class of a tenant can have these ids. */
const QUEUES_ID = '-queues';
const QUEUE_STATES_ID = '-queue-states';
const INSTANCES_ID = '-workflow-instances';

/** Ids of all classes with objects, those of workers of ours and of workerd's own among them. */
export function classIdsOf({ classes, queues, workflows, databases }: Objects): string[] {
  return [
    ...classes.map(({ id }) => id),
    ...(queues ? [QUEUES_ID, QUEUE_STATES_ID] : []),
    ...(workflows.length > 0 ? [INSTANCES_ID] : []),
    ...workflows.map(({ name }) => `miniflare-workflows-${name}`),
    ...(databases > 0 ? [DATABASES_ID] : []),
  ];
}

/** How many services {@link writeObjects} needs. */
export function objectServices(objects: Objects | undefined, disk: string | undefined): number {
  if (!objects) return 0;
  const { queues, workflows, databases } = objects;
  return Number(disk !== undefined) + Number(queues) + Number(workflows.length > 0) + Number(databases > 0);
}

/**
 * @param main the tenant's worker
 * @param disk folder of the objects; without one they are in memory
 * @param member set where it is a copy of what the cluster has
 * @param next the next service that nobody has filled in
 */
export function writeObjects(
  objects: Objects,
  main: Worker,
  disk: string | undefined,
  member: MemberConfig | undefined,
  next: () => Service,
): void {
  if (disk !== undefined) {
    const service = next();
    service.setName(DISK_SERVICE);
    const folder = service.initDisk();
    folder.setPath(disk);
    folder.setWritable(true);
  }
  const classes = main.initDurableObjectNamespaces(objects.classes.length);
  for (const [index, { name, id, sql }] of objects.classes.entries()) {
    const target = classes.get(index);
    target.setClassName(name);
    target.setUniqueKey(id);
    target.setEnableSql(sql);
  }
  const keep = (worker: Worker): void => {
    if (disk === undefined) worker.getDurableObjectStorage().setInMemory();
    else worker.getDurableObjectStorage().setLocalDisk(DISK_SERVICE);
  };
  if (objects.classes.length > 0 || objects.workflows.length > 0) keep(main);
  if (objects.queues) keep(writeQueues(next(), objects, member !== undefined));
  if (objects.workflows.length > 0) keep(writeWorkflows(next(), main, objects));
  if (objects.databases > 0 && member)
    writeDatabases(next(), member.databases).getDurableObjectStorage().setLocalDisk(DISK_SERVICE);
}

/** Makes the instance a member of its tenant's cluster. */
export function writeMember(config: Config, member: MemberConfig, peers: Service): void {
  const { tenant, credentials, peerKey, bucket, listen, advertise } = member;
  const cluster = config.initCluster();
  cluster.setBucket(`s3://${BUCKET}/${tenant}`);
  const options = [
    `aws_endpoint=http://${bucket}`,
    `aws_region=${REGION}`,
    `aws_access_key_id=${credentials.accessKey}`,
    `aws_secret_access_key=${credentials.secretKey}`,
  ];
  const list = cluster.initBucketOptions(options.length);
  for (const [index, option] of options.entries()) list.set(index, option);
  cluster.setAddress(listen);
  cluster.setAdvertise(advertise);
  cluster.setKey(peerKey);
  cluster.setStopTimeoutMs(STOP_MS);
  // It takes no unix socket for its port.
  peers.setName(PEERS_SERVICE);
  const external = peers.initExternal();
  external.setAddress(listen);
  external.initTcp();
}

/** A class of a worker of ours, which the worker itself uses. */
function writeClass(
  target: Worker_DurableObjectNamespace,
  binding: Worker_Binding,
  bound: string,
  className: string,
  id: string,
): void {
  target.setClassName(className);
  target.setUniqueKey(id);
  target.setEnableSql(true);
  binding.setName(bound);
  binding.initDurableObjectNamespace().setClassName(className);
}

/** One of workerd's own workers, within ours. */
function writeBundled(service: Service, name: string, source: string, flags: string[]): Worker {
  service.setName(name);
  const worker = service.initWorker();
  const modules = worker.initModules(2);
  modules.get(0).setName(`our-${name}.js`);
  modules.get(0).setEsModule(source);
  modules.get(1).setName(`${name}.js`);
  modules.get(1).setBundled(`/workerd/${name}.js`);
  worker.setCompatibilityDate(SYSTEM_COMPATIBILITY_DATE);
  const list = worker.initCompatibilityFlags(flags.length);
  for (const [index, flag] of flags.entries()) list.set(index, flag);
  return worker;
}

function writeQueues(service: Service, { consumers }: Objects, clustered: boolean): Worker {
  const worker = writeBundled(service, QUEUES_SERVICE, queuesWorker(), [
    'service_binding_extra_handlers',
    'rpc',
    'experimental',
  ]);
  const classes = worker.initDurableObjectNamespaces(2);
  const bindings = worker.initBindings(5);
  writeClass(classes.get(0), bindings.get(3), 'SHARD', 'QueueShard', QUEUES_ID);
  writeClass(classes.get(1), bindings.get(0), 'QUEUES', 'Queue', QUEUE_STATES_ID);
  const all = consumers.map(({ queue, settings }) => [queue, { consumer: 'MAIN', ...settings }]);
  bindings.get(1).setName('CONSUMERS');
  bindings.get(1).setJson(JSON.stringify(Object.fromEntries(all)));
  bindings.get(2).setName('MAIN');
  bindings.get(2).initService().setName('main');
  bindings.get(4).setName('CLUSTERED');
  bindings.get(4).setJson(JSON.stringify(clustered));
  return worker;
}

/** They are no worker of workerd's own: our object is smaller than what would be around `/workerd/d1.js`. */
function writeDatabases(service: Service, { source, mostBytes, points }: MemberConfig['databases']): Worker {
  service.setName(DATABASES_SERVICE);
  const worker = service.initWorker();
  const module = worker.initModules(1).get(0);
  module.setName(`${DATABASES_SERVICE}.js`);
  module.setEsModule(source);
  worker.setCompatibilityDate(SYSTEM_COMPATIBILITY_DATE);
  worker.initCompatibilityFlags(1).set(0, 'nodejs_compat');
  const bindings = worker.initBindings(3);
  writeClass(worker.initDurableObjectNamespaces(1).get(0), bindings.get(0), 'DATABASES', 'Database', DATABASES_ID);
  bindings.get(1).setName('MOST_BYTES');
  bindings.get(1).setJson(JSON.stringify(mostBytes));
  bindings.get(2).setName('POINTS');
  bindings.get(2).setJson(JSON.stringify(points));
  return worker;
}

function writeWorkflows(service: Service, main: Worker, { workflows }: Objects): Worker {
  const worker = writeBundled(service, WORKFLOWS_SERVICE, workflowsWorker(), ['rpc', 'experimental']);
  const bindings = worker.initBindings(workflows.length + 1);
  const classes = worker.initDurableObjectNamespaces(1);
  writeClass(classes.get(0), bindings.get(workflows.length), 'INSTANCES', 'Instances', INSTANCES_ID);
  const engine = main.initWorkflowsEngine();
  const actor = engine.initActorClass();
  actor.setName(WORKFLOWS_SERVICE);
  actor.setEntrypoint('Engine');
  const list = engine.initWorkflows(workflows.length);
  for (const [index, { name, className }] of workflows.entries()) {
    const instances = bindings.get(index);
    instances.setName(`workflow:${name}`);
    const namespace = instances.initDurableObjectNamespace();
    namespace.setClassName(`miniflare-workflows-${name}`);
    namespace.setServiceName('main');
    const workflow = list.get(index);
    workflow.setClassName(className);
    workflow.setName(name);
    const api = workflow.initBindingService();
    api.setName(WORKFLOWS_SERVICE);
    api.setEntrypoint(WORKFLOW_API);
    api.getProps().setJson(JSON.stringify({ workflow: name }));
  }
  return worker;
}
