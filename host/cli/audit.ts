/** `turnpike audit`: what the operators of this host did. */
import { Command } from 'commander';
import { wholeNumber } from './logs.ts';
import { callOperator } from './operator-client.ts';
import { type CommandDeps, withSession } from './session.ts';
import { table } from './terminal/printer.ts';

interface Entries {
  entries: {
    id: number;
    at: string;
    systemAt: string;
    act: string;
    subject: string | null;
    parameters: Record<string, unknown>;
    reason: string | null;
    address: string;
    outcome: number | null;
  }[];
  next: number | null;
}

export function auditCommand(deps?: CommandDeps): Command {
  return new Command('audit')
    .description('operator: what was done on this host by its operators, newest first')
    .option('--slug <slug>', 'about this slug only')
    .option('-n, --limit <acts>', 'at most 1000', wholeNumber, 100)
    .option('--before <id>', 'older ones than this')
    .action(
      withSession(deps, async (session, flags: { slug?: string; limit: number; before?: string }) => {
        const { slug, limit, before } = flags;
        const query = new URLSearchParams({
          limit: String(limit),
          ...(slug ? { slug } : {}),
          ...(before ? { before } : {}),
        });
        const found = JSON.parse((await callOperator(session, 'GET', `/audit?${query}`)).text) as Entries;
        const rows = found.entries.map(({ id, systemAt, act, subject, parameters, reason, address, outcome }) => [
          id,
          systemAt,
          outcome ?? 'cut off',
          act,
          subject ?? '',
          address,
          [reason, Object.keys(parameters).length > 0 ? JSON.stringify(parameters) : ''].filter(Boolean).join('  '),
        ]);
        const more = found.next === null ? '' : `\n… older ones: --before ${found.next}`;
        session.printer.result(found, rows.length === 0 ? 'nothing' : `${table(rows)}${more}`);
      }),
    );
}
