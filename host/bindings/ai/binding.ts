/**
 * Workers AI: `env.AI.run(model, inputs)`, by workerd's own binding. What answers is a server that speaks OpenAI's API and
 * that the operator names (`ai.url`). https://developers.cloudflare.com/workers-ai/configuration/bindings/
 */
import { z } from 'zod';
import { type Binding, byName } from '../binding.ts';
import { DEFAULT_STORE } from '../stores.ts';

export const ai: Binding = {
  key: 'ai',
  title: 'Workers AI',
  summary: "models of the operator's server",
  settings: byName(z.strictObject({})),
  idOf: () => DEFAULT_STORE,
  missing: ({ ai }) =>
    ai.url === ''
      ? 'asks for models, and this host has none: its operator has named no server (ai.url); leave it out, or call a model over HTTP with fetch()'
      : undefined,
  server: async () => (await import('./server.ts')).aiServer,
  workerd: {
    write(binding, { service }) {
      const wrapped = binding.initWrapped();
      wrapped.setModuleName('cloudflare-internal:ai-api');
      const inner = wrapped.initInnerBindings(1).get(0);
      inner.setName('fetcher');
      inner.initService().setName(service);
    },
  },
};
