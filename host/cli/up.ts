/** `turnpike up`: runs the host, as `npm start` does; every setting is a flag. */
import { Command } from 'commander';

export function upCommand(): Command {
  return new Command('up')
    .description('run the host here; settings as flags, see turnpike up --settings')
    .allowUnknownOption()
    .allowExcessArguments()
    .option('--settings', 'list every setting with its default')
    .option(
      '--cluster <url>',
      'as --cluster-database: one of several nodes over a PostgreSQL (config/cluster/README.md)',
    )
    .action(async () => {
      const at = process.argv.indexOf('up', 2);
      const flags = [...process.argv.slice(2, at), ...process.argv.slice(at + 1)].map((flag) =>
        flag.replace(/^--cluster(?==|$)/, '--cluster-database'),
      );
      // The host's entry reads its flags from the command line, as under `npm start`.
      process.argv = [...process.argv.slice(0, 2), ...(flags.includes('--settings') ? ['--help'] : flags)];
      await import('../main.ts');
    });
}
