/** Workflows: `env.FLOW.create({ params })` runs a class whose steps are kept and repeated until they succeed. */
import { readFileSync } from 'node:fs';
import { z } from 'zod';
import { type Binding, byName } from '../binding.ts';
import { CLASS_NAME } from '../durable-objects/binding.ts';

/** Name of the service that keeps the instances, and of its class that the code talks to. */
export const WORKFLOWS_SERVICE = 'workflows';
export const WORKFLOW_API = 'WorkflowBinding';

let source: string | undefined;

/** Source of the worker behind the service. */
export function workflowsWorker(): string {
  source ??= readFileSync(new URL('workflows-worker.js', import.meta.url), 'utf8');
  return source;
}

const settings = z.strictObject({
  class: CLASS_NAME.describe('name of the class that the code exports'),
  name: z
    .string()
    .regex(/^[A-Za-z0-9_][\w-]{0,63}$/, 'is an invalid name of a workflow: use letters, digits, _ and - (at most 64)')
    .describe('finds the instances again where class or binding get another name'),
});

type Settings = z.infer<typeof settings>;

function oneClass(all: false | Record<string, Settings>): boolean {
  const classes = new Map<string, string>();
  return Object.values(all).every(({ class: className, name }) => {
    const known = classes.get(name) ?? className;
    classes.set(name, known);
    return known === className;
  });
}

export const workflows: Binding = {
  key: 'workflows',
  title: 'Workflows',
  summary: 'steps that are repeated until they succeed',
  settings: byName(settings).refine(oneClass, 'gives one workflow two classes'),
  asked: true,
  workerd: {
    write(binding, { settings: { name } }) {
      const wrapped = binding.initWrapped();
      wrapped.setModuleName('cloudflare-internal:workflows-api');
      const inner = wrapped.initInnerBindings(1).get(0);
      inner.setName('fetcher');
      const service = inner.initService();
      service.setName(WORKFLOWS_SERVICE);
      service.setEntrypoint(WORKFLOW_API);
      service.getProps().setJson(JSON.stringify({ workflow: name }));
    },
    writeControl(binding, { settings: { name } }) {
      const service = binding.initService();
      service.setName(WORKFLOWS_SERVICE);
      service.setEntrypoint('WorkflowControl');
      service.getProps().setJson(JSON.stringify({ workflow: name }));
    },
  },
};
