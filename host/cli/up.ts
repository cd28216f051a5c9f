/** `turnpike up`: runs the host, as `npm start` does; every setting is a flag. */
import { Command } from 'commander';
import { Failure } from './terminal/failure.ts';

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
    .option('--s3 <url>', 'bucket of such a cluster, https://s3.example.com/bucket/prefix; its keys are settings')
    .action(async () => {
      const at = process.argv.indexOf('up', 2);
      const flags = settingFlags([...process.argv.slice(2, at), ...process.argv.slice(at + 1)]);
      // The host's entry reads its flags from the command line, as under `npm start`.
      process.argv = [...process.argv.slice(0, 2), ...(flags.includes('--settings') ? ['--help'] : flags)];
      await import('../main.ts');
    });
}

/** Short names for those who start a cluster, written as the settings that they stand for. */
export function settingFlags(given: readonly string[]): string[] {
  const flags = given.map((flag) => flag.replace(/^--cluster(?==|$)/, '--cluster-database'));
  const at = flags.findIndex((flag) => /^--s3(?:=|$)/.test(flag));
  if (at < 0) return flags;
  const inline = flags[at]?.startsWith('--s3=') ? flags[at].slice('--s3='.length) : undefined;
  const url = URL.parse(inline ?? flags[at + 1] ?? '');
  const [, bucket = '', prefix = ''] = /^\/([^/]+)(?:\/(.*))?$/.exec(url?.pathname ?? '') ?? [];
  if (!url || bucket === '' || url.username !== '' || url.search !== '')
    throw new Failure(
      'usage',
      '--s3 takes the address of a bucket, such as https://s3.example.com/bucket, without keys.',
    );
  const settings = ['--cluster-storage-endpoint', url.origin, '--cluster-storage-bucket', bucket];
  // Without one, the usual prefix.
  if (prefix !== '') settings.push('--cluster-storage-prefix', prefix.endsWith('/') ? prefix : `${prefix}/`);
  return flags.toSpliced(at, inline === undefined ? 2 : 1, ...settings);
}
