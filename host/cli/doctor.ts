/** `turnpike doctor`: says what works, what does not, and what to do about it. */
import { resolve } from 'node:path';
import { Command } from 'commander';
import { type Finding, findingsText } from './doctor/check.ts';
import { type CommandDeps, type Session, withSession } from './session.ts';
import { reportedFailure } from './terminal/failure.ts';

export function doctorCommand(deps?: CommandDeps): Command {
  return new Command('doctor')
    .description('check this machine, the configuration and the running host')
    .option('--install-system', 'install missing system programs first (as root on Debian and Ubuntu)')
    .action(withSession(deps, doctor));
}

async function doctor(session: Session, { installSystem }: { installSystem?: boolean }): Promise<void> {
  if (installSystem) await installSystemPrograms();
  const findings = await examine(session);
  const faults = findings.filter(({ state }) => state === 'fault');
  session.printer.result({ healthy: faults.length === 0, findings }, findingsText(findings));
  if (faults.length > 0) {
    throw reportedFailure('unhealthy', `These do not work: ${faults.map(({ name }) => name).join(', ')}.`);
  }
}

async function examine(session: Session): Promise<Finding[]> {
  const [machine, host] = await Promise.all([import('./doctor/machine.ts'), import('./doctor/host.ts')]);
  const { cwd, env } = session.terminal;
  const { finding: configuration, config, isOwn } = await host.checkConfiguration(cwd, env);
  const configured = resolve(cwd, config.data);
  const others = isOwn ? [] : session.dataFolders;
  const folders = session.options.data === undefined ? [configured, ...others] : session.dataFolders;
  const [folder = configured] = folders;
  const [relayers, facilitators, solana] = await Promise.all([
    host.checkRelayer(config, folder),
    host.checkDeposits(config),
    host.checkFacilitator(config),
    host.checkSolana(config, folder),
  ]);
  return Promise.all([
    machine.checkNode(),
    machine.checkPackages(),
    machine.checkWorkerd(),
    machine.checkSandbox(config),
    machine.checkPrograms(),
    configuration,
    machine.checkDataFolder(folder),
    host.checkNetwork(config),
    ...(config.payments.network === 'local' ? [machine.checkLocalChain()] : []),
    ...relayers,
    ...facilitators,
    ...solana,
    ...(config.speech.engine && config.builtinTenants.enabled.includes('speech')
      ? [machine.checkSpeech(config, folder)]
      : []),
    host.checkHealth(session.namedUrl ?? host.urlOf(config, folders), session.fetch),
  ]);
}

/** The scripts folder installs them, because it has to work before there is a Node that runs TypeScript. */
async function installSystemPrograms(): Promise<void> {
  const script = new URL('../../scripts/system-packages.mjs', import.meta.url).href;
  const { installSystemPackages } = (await import(script)) as {
    installSystemPackages(purposes: string[]): Promise<void>;
  };
  await installSystemPackages(['run']);
}
