/** Commands of whoever has the host's own code: they run a host, or look after one. */
import type { Command } from 'commander';
import { auditCommand } from './audit.ts';
import { backupCommand } from './backup.ts';
import { blocksCommand } from './blocks.ts';
import { clusterCommand } from './cluster.ts';
import { consoleCommand } from './console.ts';
import { devCommand } from './dev.ts';
import { doctorCommand } from './doctor.ts';
import { paymentsCommand } from './payments.ts';
import { restoreCommand } from './restore.ts';
import { servicesCommand } from './services.ts';
import type { CommandDeps } from './session.ts';
import { speechCommand } from './speech.ts';
import { tenantsCommand } from './tenants.ts';
import { upCommand } from './up.ts';

export function hostCommands(deps?: CommandDeps): Command[] {
  return [
    upCommand(),
    devCommand(deps),
    doctorCommand(deps),
    tenantsCommand(deps),
    blocksCommand(deps),
    clusterCommand(deps),
    auditCommand(deps),
    consoleCommand(deps),
    paymentsCommand(deps),
    servicesCommand(deps),
    speechCommand(deps),
    backupCommand(deps),
    restoreCommand(deps),
  ];
}
