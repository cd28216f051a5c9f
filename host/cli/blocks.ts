/** `turnpike blocks`: wallets and address ranges that this host does not serve; for its operator. */
import { Command } from 'commander';
import { callOperator } from './operator-client.ts';
import { type CommandDeps, withSession } from './session.ts';
import { table } from './terminal/printer.ts';

interface Block {
  subject: string;
  kind: 'wallet' | 'range';
  reason: string | null;
  createdAt: string;
}

export function blocksCommand(deps?: CommandDeps): Command {
  const command = new Command('blocks').description(
    'operator: wallets and address ranges that the host does not serve',
  );
  command
    .command('list', { isDefault: true })
    .description('list what is blocked')
    .action(
      withSession(deps, async (session) => {
        const found = JSON.parse((await callOperator(session, 'GET', '/blocks')).text) as { blocks: Block[] };
        const rows = found.blocks.map(({ subject, createdAt, reason }) => [subject, createdAt, reason ?? '']);
        session.printer.result(found, table(rows) || 'nothing is blocked');
      }),
    );
  command
    .command('add')
    .description('take no payment or change from a wallet, or answer an address range 403, from now on')
    .argument('<subject>', '0x…, an address, or a range such as 203.0.113.0/24')
    .option('--reason <text>', 'for operators alone')
    .action(
      withSession(deps, async (session, subject: string, { reason }: { reason?: string }) => {
        const body = { subject, ...(reason === undefined ? {} : { reason }) };
        const block = JSON.parse((await callOperator(session, 'POST', '/blocks', body)).text) as Block;
        session.printer.result(block, `${block.subject} is blocked`);
      }),
    );
  command
    .command('remove')
    .description('end a block')
    .argument('<subject>', 'as it is listed')
    .action(
      withSession(deps, async (session, subject: string) => {
        await callOperator(session, 'DELETE', `/blocks/${encodeURIComponent(subject)}`);
        session.printer.result({ subject, removed: true }, `${subject} is no longer blocked`);
      }),
    );
  return command;
}
