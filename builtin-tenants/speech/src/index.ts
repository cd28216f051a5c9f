/**
 * Entry of the speech tenant: requests go to the app, the cron trigger delivers what callers asked to be called back for.
 */
import { createApp } from './app.ts';
import { deliverStored } from './callback.ts';
import { type Env, readSettings } from './settings.ts';

const app = createApp();

export default {
  fetch: app.fetch,
  async scheduled(_event: unknown, env: Env): Promise<void> {
    if (env.STORE !== undefined) await deliverStored(env.STORE, env.PAYMENTS, readSettings(env));
  },
};
