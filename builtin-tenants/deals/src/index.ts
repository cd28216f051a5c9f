/** The deals service as a Worker: priced endpoints for the pay platform's gateway, free pages for everybody, a cron. */
import { checkEnvironment, type Env } from './environment.ts';
import { app } from './http/app.ts';
import { openService, type Service, tick } from './service.ts';

export default {
  async fetch(request: Request, env: Env): Promise<Response> {
    checkEnvironment(env);
    return await appOf(await openService(env)).fetch(request);
  },

  async scheduled(_event: unknown, env: Env): Promise<void> {
    checkEnvironment(env);
    await tick(await openService(env));
  },
};

const apps = new WeakMap<Service, ReturnType<typeof app>>();

/** The routes, put together once per isolate. */
function appOf(service: Service): ReturnType<typeof app> {
  const made = apps.get(service) ?? app(service);
  apps.set(service, made);
  return made;
}
