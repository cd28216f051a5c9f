/** Which classes of a deployment's code have objects, and what identifies those objects for ever. */
import type { BindingSet } from '../../shared/contracts.ts';

/** In a tenant's folder; below it a folder for each class, named by its id. */
export const FOLDER = 'durableObjects';

export interface ObjectClass {
  /** As the code exports it. */
  name: string;
  /** Of its objects: it is part of each object's id, and stays when the class is renamed. */
  id: string;
  sql: boolean;
}

export interface ObjectClasses {
  classes: ObjectClass[];
  /** Ids of classes whose objects are to be removed. */
  deleted: string[];
}

/** @returns undefined where the deployment has no objects */
export function objectClasses(set: BindingSet): ObjectClasses | undefined {
  const asked = set.durableObjects;
  if (typeof asked !== 'object') return undefined;
  const classes = new Map<string, ObjectClass>();
  const deleted: string[] = [];
  for (const settings of Object.values(asked)) {
    const name = String(settings.class);
    const { id = name, sql = true } = settings;
    if (settings.deleted === true) deleted.push(id);
    else classes.set(name, { name, id, sql: sql === true });
  }
  return { classes: [...classes.values()], deleted };
}
