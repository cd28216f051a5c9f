/**
 * What of a deployment has state in its own workerd: the classes of its Durable Objects with what identifies the objects
 * for ever, its queues and its workflows, which workerd builds upon objects.
 */
import type { BindingSet, BindingSettings } from '../../shared/contracts.ts';
import { isElsewhere } from '../queues/binding.ts';

/** In a tenant's folder; below it a folder for each class, named by its id. */
export const FOLDER = 'durableObjects';

export interface ObjectClass {
  /** As the code exports it. */
  name: string;
  /** Of its objects: it is part of each object's id, and stays when the class is renamed. */
  id: string;
  sql: boolean;
}

export interface Consumer {
  queue: string;
  settings: Record<string, unknown>;
}

export interface Workflow {
  name: string;
  className: string;
}

export interface Objects {
  classes: ObjectClass[];
  /** Ids of classes whose objects are to be removed. */
  deleted: string[];
  /** Whether there are queues. */
  queues: boolean;
  consumers: Consumer[];
  workflows: Workflow[];
  /** How many databases are objects, as they are on several nodes: those of D1, and one of data points. */
  databases: number;
}

/** @param isClustered the host is one of several nodes @returns undefined where the deployment has nothing of the kind */
export function objectsOf(set: BindingSet, isClustered = false): Objects | undefined {
  const { classes, deleted } = objectClasses(settingsOf(set, 'durableObjects'));
  const queues = settingsOf(set, 'queues').filter((settings) => !isElsewhere(settings));
  const consumers = queues.flatMap(({ queue, consumer }) =>
    consumer ? [{ queue: String(queue), settings: consumer as Record<string, unknown> }] : [],
  );
  const flows = settingsOf(set, 'workflows').map(
    ({ name, class: className }) => [String(name), String(className)] as const,
  );
  const workflows = [...new Map(flows)].map(([name, className]) => ({ name, className }));
  const databases = isClustered ? databasesOf(set.d1) + Number(hasPoints(set)) : 0;
  const found = { classes, deleted, queues: queues.length > 0, consumers, workflows, databases };
  return classes.length + deleted.length + queues.length + workflows.length + databases > 0 ? found : undefined;
}

/**
 * Whether several instances can serve the deployment at a time: none of them has what all have to agree on. Besides
 * objects that is what limits of rates have counted, for which Cloudflare promises one count for each place.
 */
export function isSpreadable(set: BindingSet, isClustered = false): boolean {
  return objectsOf(set, isClustered) === undefined && settingsOf(set, 'ratelimit').length === 0;
}

/** Names of the classes that the code has to export. */
export function exportedClasses(set: BindingSet): string[] {
  const { classes = [], workflows = [] } = objectsOf(set) ?? {};
  return [...new Set([...classes.map(({ name }) => name), ...workflows.map(({ className }) => className)])];
}

function settingsOf(set: BindingSet, key: string): BindingSettings[] {
  const asked = set[key];
  return typeof asked === 'object' ? Object.values(asked) : [];
}

/** Whether there are bindings of Analytics Engine: their data points are in one database. */
export function hasPoints(set: BindingSet): boolean {
  return settingsOf(set, 'analytics').length > 0;
}

/** Two bindings may lead to one. */
function databasesOf(asked: BindingSet[string] = false): number {
  if (typeof asked === 'boolean') return Number(asked);
  return new Set(Object.entries(asked).map(([name, { id = name }]) => id)).size;
}

function objectClasses(asked: BindingSettings[]): Pick<Objects, 'classes' | 'deleted'> {
  const classes = new Map<string, ObjectClass>();
  const deleted: string[] = [];
  for (const settings of asked) {
    const name = String(settings.class);
    const { id = name, sql = true } = settings;
    if (settings.deleted === true) deleted.push(id);
    else classes.set(name, { name, id, sql: sql === true });
  }
  return { classes: [...classes.values()], deleted };
}
