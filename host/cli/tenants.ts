/** `turnpike tenants`: every deployment on this host, for its operator. */
import { Command } from 'commander';
import { callOperator } from './operator-client.ts';
import { type CommandDeps, withSession } from './session.ts';
import { table } from './terminal/printer.ts';

interface Tenants {
  tenants: {
    slug: string;
    state: string;
    owner: string;
    version: number;
    builtin: boolean;
    expiresAt: string | null;
  }[];
}

export function tenantsCommand(deps?: CommandDeps): Command {
  return new Command('tenants').description('operator: list every deployment on this host').action(
    withSession(deps, async (session) => {
      const found = JSON.parse((await callOperator(session, 'GET', '/tenants')).text) as Tenants;
      const rows = found.tenants.map(({ slug, state, version, owner, builtin, expiresAt }) => [
        slug,
        state,
        String(version),
        builtin ? 'built in' : owner,
        expiresAt ?? 'never',
      ]);
      session.printer.result(found, table([['slug', 'state', 'version', 'owner', 'expires'], ...rows]));
    }),
  );
}
