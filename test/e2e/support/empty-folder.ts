/** A folder outside of the checkout, where only what npm installs is at hand: the place of somebody else's client. */
import { execFile } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { homedir, tmpdir } from 'node:os';
import path from 'node:path';
import { promisify } from 'node:util';

export interface EmptyFolder {
  /** Runs shell lines in it. @throws Error with what they wrote, when one fails */
  sh(lines: string, env?: Record<string, string>): Promise<string>;
  /** Runs a module in it. @throws Error with what it wrote, when it fails */
  run(module: string, env?: Record<string, string>): Promise<string>;
  remove(): Promise<void>;
}

export async function emptyFolder(): Promise<EmptyFolder> {
  const folder = await mkdtemp(path.join(tmpdir(), 'tp-client-'));
  const execute = async (program: string, args: string[], env: Record<string, string>) => {
    const running = promisify(execFile)(program, args, { cwd: folder, env: { ...outside(folder), ...env } });
    // The mppx command reads what may be piped to it.
    running.child.stdin?.end();
    return (await running).stdout;
  };
  return {
    sh: (lines, env = {}) => execute('bash', ['-euc', lines], env),
    async run(module, env = {}) {
      await writeFile(path.join(folder, 'client.mjs'), module);
      return await execute(process.execPath, ['client.mjs'], env);
    },
    remove: () => rm(folder, { recursive: true, force: true }),
  };
}

/** The environment without what `npm test` says about the checkout; npm keeps its registry and its cache. */
function outside(home: string): Record<string, string> {
  const kept = Object.entries(process.env).filter(
    (entry): entry is [string, string] =>
      entry[1] !== undefined &&
      !/^(npm_(package|lifecycle|config_local_prefix|command)|INIT_CWD|NODE_(ENV|OPTIONS|PATH)|VITEST)/.test(entry[0]),
  );
  const search = (process.env.PATH ?? '').split(':').filter((entry) => !entry.endsWith('node_modules/.bin'));
  return {
    // What is at hand from an earlier run is not asked for again.
    npm_config_prefer_offline: 'true',
    npm_config_cache: path.join(homedir(), '.npm'),
    npm_config_userconfig: path.join(homedir(), '.npmrc'),
    ...Object.fromEntries(kept),
    PATH: [path.dirname(process.execPath), ...search].join(':'),
    HOME: home,
  };
}
