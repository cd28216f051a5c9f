/** `turnpike wallet`: creates, imports and shows the wallet that pays and owns. The key itself is never printed. */
import { resolve } from 'node:path';
import { Command } from 'commander';
import { type CommandDeps, type Session, withSession } from './session.ts';
import { defaultWalletPath, parsePrivateKey, type StoredWallet, writeWallet } from './wallet/wallet-file.ts';

interface FileFlags {
  file?: string;
}

export function walletCommand(deps?: CommandDeps): Command {
  const command = new Command('wallet').description('the wallet that pays and owns');
  command
    .command('create')
    .description('make a new wallet in ~/.config/turnpike/wallet.json')
    .option('--file <path>', 'another file')
    .action(
      withSession(deps, (session, flags: FileFlags) =>
        save(session, flags, async () => {
          const { generatePrivateKey } = await import('viem/accounts');
          return parsePrivateKey(generatePrivateKey(), 'the new key');
        }),
      ),
    );
  command
    .command('import')
    .description('take over a private key from stdin: turnpike wallet import < key.txt')
    .option('--file <path>', 'another file')
    .action(
      withSession(deps, (session, flags: FileFlags) =>
        save(session, flags, async () => parsePrivateKey(await session.terminal.readInput(), 'stdin')),
      ),
    );
  command
    .command('show')
    .description('show the address of the wallet that would be used, and where it is')
    .action(
      withSession(deps, async (session) => {
        const { account, source } = await session.wallet();
        session.printer.result({ address: account.address, source }, `${account.address}\n${source}`);
      }),
    );
  return command;
}

async function save(
  { terminal, printer }: Session,
  { file }: FileFlags,
  make: () => Promise<StoredWallet>,
): Promise<void> {
  const path = file === undefined ? defaultWalletPath(terminal) : resolve(terminal.cwd, file);
  const wallet = await make();
  await writeWallet(path, wallet);
  printer.result(
    { address: wallet.address, file: path },
    `${wallet.address}\nkept in ${path}: back it up, nobody can restore it`,
  );
}
