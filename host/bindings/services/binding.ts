/**
 * Service bindings: `env.AUTH.fetch(request)` and `env.AUTH.method(…)` reach an entrypoint of another deployment of this
 * host, or of the deployment itself, without the network. What others may call is said in the same place.
 */
import { z } from 'zod';
import { SLUG } from '../../shared/slug.ts';
import { type Binding, byName } from '../binding.ts';
import { ENTRYPOINT, RPC_HOST } from './names.ts';

/** A wallet's address, or one deployment of it: a slug alone can be another owner's one day. */
const OPENED = /^0x[0-9a-fA-F]{40}(?:\/[a-z0-9-]{3,40})?$/;

const entrypoint = z
  .string()
  .regex(ENTRYPOINT, 'is an invalid name of an entrypoint')
  .optional()
  .describe('a class or object that the code exports; default: the default export');

const settings = z
  .strictObject({
    service: z
      .string()
      .regex(SLUG, 'is no slug: 3 to 40 characters a-z, 0-9 and -')
      .optional()
      .describe('slug of the deployment that is called; default: the deployment itself'),
    entrypoint,
    props: z.record(z.string(), z.unknown()).optional().describe('ctx.props of an entrypoint of the deployment itself'),
    open: z
      .array(z.string().regex(OPENED, 'takes wallets such as 0x…, or single deployments of them such as 0x…/shop'))
      .max(256)
      .optional()
      .describe('binds nothing: whose deployments may call this entrypoint, beside those of the same owner'),
  })
  .refine(({ open, service, props }) => !open || (service === undefined && props === undefined), {
    path: ['open'],
    message: 'opens an entrypoint of the deployment itself: leave out service and props',
  })
  .refine(({ props, service }) => !props || service === undefined, {
    path: ['props'],
    message: 'is for entrypoints of the deployment itself: another one could not tell who says it',
  })
  .refine(({ props }) => Buffer.byteLength(JSON.stringify(props ?? {})) <= 16_384, {
    path: ['props'],
    message: 'takes at most 16 KB',
  });

export const services: Binding = {
  key: 'services',
  title: 'service',
  summary: 'calls of other deployments',
  settings: byName(settings),
  hidden: ({ open }) => open !== undefined,
  within: ({ service }) => service === undefined,
  idOf: ({ service, entrypoint = '' }) => `${service}/${entrypoint}`,
  server: async () => (await import('./server.ts')).servicesServer,
  workerd: {
    wholeUrls: true,
    rpcHost: RPC_HOST,
    write(binding, { service, settings: { service: slug, entrypoint, props } }) {
      const target = binding.initService();
      target.setName(slug === undefined ? 'main' : service);
      if (slug !== undefined) return;
      if (typeof entrypoint === 'string') target.setEntrypoint(entrypoint);
      if (props) target.getProps().setJson(JSON.stringify(props));
    },
  },
};
