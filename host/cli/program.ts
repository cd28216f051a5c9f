/** The `turnpike` command: its global options and every subcommand. */
import { Command, Option } from 'commander';
import { accountCommand } from './account.ts';
import { analyticsCommand } from './analytics.ts';
import { checkCommand } from './check.ts';
import { cronsCommand } from './crons.ts';
import { d1Command } from './d1.ts';
import { deleteCommand } from './delete.ts';
import { deployCommand } from './deploy.ts';
import { domainsCommand } from './domains.ts';
import { EXIT } from './exit-codes.ts';
import { getCommand } from './get.ts';
import { initCommand } from './init.ts';
import { keysCommand } from './keys.ts';
import { kvCommand } from './kv.ts';
import { listCommand } from './list.ts';
import { logsCommand } from './logs.ts';
import { payCommand } from './pay.ts';
import { collect } from './project/options.ts';
import { queuesCommand } from './queues.ts';
import { r2Command } from './r2.ts';
import { renewCommand } from './renew.ts';
import { promoteCommand, rollbackCommand } from './rollback.ts';
import { secretsCommand } from './secrets.ts';
import { type CommandDeps, DEFAULT_HOST_URL, DEFAULT_MAX_PAY } from './session.ts';
import { sessionCommand } from './session-command.ts';
import { tailCommand } from './tail.ts';
import { typesCommand } from './types.ts';
import { updateCommand } from './update.ts';
import { usageCommand } from './usage.ts';
import { versionsCommand } from './versions.ts';
import { walletCommand } from './wallet.ts';
import { workflowsCommand } from './workflows.ts';

/**
 * @param version of the package
 * @param ofHost commands that need the host's own code (host-commands.ts)
 */
export function createProgram(version: string, deps?: CommandDeps, ofHost: Command[] = []): Command {
  const program = new Command('turnpike')
    .description('Deploy HTTP handlers with a wallet, charge for them, and run the host that they live on.')
    .version(version)
    .option('--json', 'print one JSON document to stdout')
    .option(
      '--host-url <url>',
      `address of the host; TURNPIKE_URL, the manifest's host (once you confirmed it), the host of the data folder (default: ${DEFAULT_HOST_URL})`,
    )
    .option('--wallet <file>', 'key file, or test:<n> for a test wallet of a local host; TURNPIKE_WALLET')
    .option('--data <folder>', 'data folder of a host on this machine; TURNPIKE_DATA (default: ./data)')
    .option('-y, --yes', `pay up to ${DEFAULT_MAX_PAY} USD (or maxPay of your settings), or delete, without a question`)
    .option('--max-pay <usd>', 'pay without a question up to this price, and refuse above it')
    .option('--allow-http', 'send code, secrets and payments to a host without TLS on another machine')
    .addOption(new Option('--protocol <name>', 'pay only by this protocol').choices(['mpp', 'x402']))
    .option('--rpc-url <url>', 'RPC of the chain that the payment is on; default: its public one')
    .option('--allow-asset <chain:token:decimals>', 'pay with this token too; repeatable', collect)
    .addHelpText('after', helpFooter());
  for (const [group, commands] of groups(deps, ofHost)) {
    for (const command of commands) program.addCommand(command.helpGroup(group));
  }
  return program;
}

function groups(deps: CommandDeps | undefined, ofHost: Command[]): [string, Command[]][] {
  return [
    [
      'Your deployments:',
      [
        initCommand(deps),
        checkCommand(deps),
        typesCommand(deps),
        deployCommand(deps),
        updateCommand(deps),
        renewCommand(deps),
        deleteCommand(deps),
        listCommand(deps),
        getCommand(deps),
        logsCommand(deps),
        tailCommand(deps),
        usageCommand(deps),
        cronsCommand(deps),
        versionsCommand(deps),
        rollbackCommand(deps),
        promoteCommand(deps),
        domainsCommand(deps),
        secretsCommand(deps),
        sessionCommand(deps),
        keysCommand(deps),
        d1Command(deps),
        kvCommand(deps),
        r2Command(deps),
        analyticsCommand(deps),
        queuesCommand(deps),
        workflowsCommand(deps),
      ],
    ],
    ['Paying:', [payCommand(deps), walletCommand(deps), accountCommand(deps)]],
    ...(ofHost.length > 0 ? ([['Running a host:', ofHost]] as [string, Command[]][]) : []),
  ];
}

function helpFooter(): string {
  const codes = Object.values(EXIT).map(([code, what]) => `  ${code}  ${what}`);
  return `
The wallet is, in this order: --wallet, TURNPIKE_PRIVATE_KEY, TURNPIKE_WALLET, the first test wallet of a local host
with test money, ~/.config/turnpike/wallet.json. Commands that change or read a deployment take a deploy key instead:
TURNPIKE_DEPLOY_KEY (see turnpike keys).

Your settings are ~/.config/turnpike/settings.json: "maxPay" is the most that --yes pays, "hosts" are the addresses that
any project may name; what you confirmed for a project is kept there too.

Exit codes:
${codes.join('\n')}

First steps, with a host running here (npm start):
  $ echo "export default { fetch: () => new Response('hello\\n') }" > hello.js
  $ turnpike deploy hello.js --slug hello
  $ curl http://localhost:8402/hello/`;
}
