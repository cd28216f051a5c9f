/** Durable Objects: `env.ROOMS.get(id)` is an object of a class of the tenant's own, with state on this disk. */
import { z } from 'zod';
import { type Binding, byName } from '../binding.ts';
import { FOLDER } from './classes.ts';

export const CLASS_NAME = z
  .string()
  .regex(/^[A-Za-z_]\w{0,63}$/, 'is no name of a class: use letters, digits and _ (at most 64)');

const settings = z
  .strictObject({
    class: CLASS_NAME.optional().describe('name of the class that the code exports'),
    id: z
      .string()
      // workerd names the folders of workflows with this prefix.
      .regex(
        /^(?!miniflare-)[A-Za-z0-9_][\w.-]{0,63}$/,
        'is an invalid id: use letters, digits, _, - and . (at most 64)',
      )
      .optional()
      .describe('finds the objects again where the class gets another name; default: the name of the class'),
    sql: z.boolean().optional().describe('false: the objects have no ctx.storage.sql; default: true'),
    deleted: z
      .boolean()
      .optional()
      .describe('true: nothing is bound; the objects with this id are removed when the deployment comes into service'),
  })
  .refine(
    ({ class: name, id, deleted = false }) => (deleted ? name === undefined && id !== undefined : name !== undefined),
    'takes "class", the name of a class that the code exports; or "id" and "deleted": true',
  );

type Settings = z.infer<typeof settings>;

/** A class has one place for its objects, and a place one class. */
function agree(all: false | Record<string, Settings>): boolean {
  const places = new Map<string, string>();
  const classes = new Map<string, string>();
  return Object.values(all).every(({ class: name = '', id = name, sql = true, deleted = false }) => {
    const place = places.get(name) ?? `${id} ${sql}`;
    const owner = classes.get(id) ?? `${name} ${deleted}`;
    if (!deleted) places.set(name, place);
    classes.set(id, owner);
    return (deleted || place === `${id} ${sql}`) && owner === `${name} ${deleted}`;
  });
}

export const durableObjects: Binding = {
  key: 'durableObjects',
  title: 'Durable Objects',
  summary: 'objects with state of their own',
  settings: byName(settings).refine(agree, 'gives one class two ids, or one id to two classes'),
  limits: ({ storage }) => ({ durableObjectBytes: storage.durableObjectBytes }),
  hidden: ({ deleted }) => deleted === true,
  data: { folder: FOLDER },
  workerd: {
    write(binding, { settings: { class: name } }) {
      binding.initDurableObjectNamespace().setClassName(String(name));
    },
  },
};
