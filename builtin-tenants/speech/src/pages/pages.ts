/**
 * The free routes.
 */
/// <reference path="../../../kit/text-modules.d.ts" />
import type { Context } from 'hono';
import type { Html } from '../../../kit/look/layout.ts';
import { LOOK_PATH, lookResponse, prefixOf } from '../../../kit/look/tenant.ts';
import type { App, AppEnv } from '../app.ts';
import { VERSION } from '../catalogue.ts';
import { readSettings, type Settings } from '../settings.ts';
import { demoPage } from './demo.ts';
import demoScript from './demo-client.txt';
import { descriptor } from './descriptor.ts';
import { guideMarkdown, guidePage } from './guide.ts';
import { health } from './health.ts';
import { openapi } from './openapi.ts';

/** Pages run their own script and talk to their own origin; nothing else. */
const PAGE_POLICY =
  "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; connect-src 'self'; media-src blob:; base-uri 'none'; form-action 'none'";

export function mountPages(app: App): void {
  const settings = (context: Context<AppEnv>) => readSettings(context.env);
  const html = (context: Context<AppEnv>, text: Html) =>
    context.html(text, 200, { 'content-security-policy': PAGE_POLICY, 'referrer-policy': 'no-referrer' });
  app.get('/', async (context) => {
    const { engines } = await health(settings(context));
    return html(context, demoPage(settings(context), engines.listen, prefixOf(context.req.raw)));
  });
  app.get(LOOK_PATH, () => lookResponse());
  app.get('/demo.js', (context) =>
    context.body(demoScript, 200, { 'content-type': 'text/javascript; charset=utf-8', 'cache-control': 'max-age=300' }),
  );
  app.get('/docs', (context) =>
    html(context, guidePage(settings(context), addressOf(context, settings(context)), prefixOf(context.req.raw))),
  );
  app.get('/llms.txt', (context) =>
    context.text(guideMarkdown(settings(context), addressOf(context, settings(context)))),
  );
  app.get('/openapi.json', (context) =>
    context.json(openapi(settings(context), addressOf(context, settings(context)))),
  );
  app.get('/.well-known/paywrap.json', (context) => context.json(descriptor(settings(context))));
  app.get('/healthz', async (context) =>
    context.json({ version: VERSION, ...(await health(settings(context))) }, 200, { 'cache-control': 'no-store' }),
  );
}

/** The public address without a slash at the end, as the operator set it, or as the caller came. */
function addressOf(context: Context<AppEnv>, { publicUrl }: Settings): string {
  if (publicUrl !== undefined) return publicUrl;
  const { origin } = new URL(context.req.url);
  return `${origin}${prefixOf(context.req.raw)}`;
}
