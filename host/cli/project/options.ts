/** The options that deploy and update share. */
import type { Command } from 'commander';
import { BINDINGS } from '../../bindings/index.ts';

export function addProjectOptions(command: Command): Command {
  command
    .option('--slug <name>', 'name of the deployment')
    .option(
      '--preview',
      'of a deployment that is there: upload a version with an address of its own; what is live stays',
    )
    .option(
      '--manifest <file>',
      "manifest to use alone; default: turnpike.json and wrangler's configuration beside the entry or here",
    )
    .option('-e, --env <name>', "environment of wrangler's configuration")
    .option(
      '--secret <KEY=@file>',
      'secret from a file, or KEY=env:NAME, KEY=- (stdin), KEY=value; repeatable',
      collect,
    )
    .option(
      '--secrets-from <file>',
      'secrets from a file such as .dev.vars or .env: NAME=value lines; repeatable',
      collect,
    )
    .option('--root <folder>', "folder that the code's imports may come from; default: the manifest's, or this one")
    .option(
      '--external <module>',
      'a module of workerd that is not bundled, although a package has its name, such as util; repeatable',
      collect,
    )
    .option('--allow-env <NAME>', 'give the project this environment variable; repeatable', collect);
  for (const { key, env, summary } of BINDINGS) if (env) command.option(`--${key}`, `env.${env}: ${summary}`);
  return command
    .option(
      '--share <name>',
      "a binding of kv or r2 leads to the owner's store of its id, one of queues to the owner's queue, which your other deployments may share; repeatable",
      collect,
    )
    .option(
      '--service <NAME=slug>',
      'env.NAME calls another deployment; NAME=slug/Entrypoint a named entrypoint of it; repeatable',
      collect,
    )
    .option(
      '--open <wallet>',
      'deployments of this other owner may call this one: 0x…, 0x…/slug, or Entrypoint=0x…; repeatable',
      collect,
    )
    .option(
      '--price <route=usd>',
      'charge callers: "POST /v1/x=0.05", metered: "POST /v1/x<=0.05"; repeatable',
      collect,
    )
    .option('--cron <expression>', 'run scheduled(), UTC, such as "0 * * * *"; repeatable', collect)
    .option('--pay-to <address>', 'wallet that receives the revenue; default: the owner')
    .option('--notify <url>', 'called before the deployment expires')
    .option('--compatibility-date <date>', 'behaviour of the runtime as of this day')
    .option('--compatibility-flag <flag>', 'a flag of the runtime; repeatable', collect);
}

/** Gathers a repeatable option. */
export function collect(value: string, before: string[] | undefined): string[] {
  return [...(before ?? []), value];
}
