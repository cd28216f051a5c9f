/** `/me/auto-topup`: a mandate of the holder's wallet, its draws, and its end. */
import { Hono } from 'hono';
import type { OpenedAccount } from '../accounts/accounts.ts';
import { Problem } from '../problem.ts';
import type { AutoTopUp } from './auto-topup.ts';

export interface AutoTopUpApiParts {
  topUps: AutoTopUp;
  /** The account of the caller. @throws Problem unauthorized */
  mine(request: Request): Promise<OpenedAccount>;
  /** The same, of a caller who may change it. @throws Problem forbidden */
  managed(request: Request): Promise<OpenedAccount>;
  /** Tops up who is low, after the answer. */
  topUp(account: string): void;
}

export function autoTopUpApp({ topUps, mine, managed, topUp }: AutoTopUpApiParts): Hono {
  const app = new Hono();
  app.get('/', async (c) => c.json(await topUps.view((await mine(c.req.raw)).id)));
  app.post('/', async (c) => {
    const request = c.req.raw;
    const authorization = request.headers.get('authorization') ?? '';
    const opened = /(?:^|,)\s*Bearer\s/i.test(authorization) ? await managed(request) : undefined;
    // Clients of MPP put the signature where the credential was: then the challenge says whose account it is.
    if (/(?:^|,)\s*Payment\s/i.test(authorization)) {
      const got = await topUps.accept(request.headers, opened);
      if ('answer' in got) return got.answer;
      topUp(got.account);
      return c.json(await topUps.view(got.account), 201, { 'cache-control': 'no-store' });
    }
    const body: unknown = await request.json().catch(() => undefined);
    if (typeof body !== 'object' || body === null) throw new Problem('invalid_json', 'A JSON object is expected.');
    return topUps.ask(opened ?? (await managed(request)), body as Record<string, unknown>);
  });
  app.delete('/', async (c) => {
    if (!(await topUps.end((await managed(c.req.raw)).id)))
      throw new Problem('not_found', 'The account has no mandate; nothing is drawn.');
    return c.body(null, 204);
  });
  return app;
}
