/** `turnpike types`: TypeScript types of `env`, from the project's configuration. */
import { writeFile } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { Command } from 'commander';
import { bindingSet, connectionSecrets, envBindings } from '../bindings/index.ts';
import type { Project } from './project/manifest.ts';
import { type CommandDeps, withSession } from './session.ts';

/** Key of a binding -> its type in `@cloudflare/workers-types`. */
const TYPES: Record<string, string> = {
  kv: 'KVNamespace',
  d1: 'D1Database',
  r2: 'R2Bucket',
  payments: 'Fetcher',
  ratelimit: 'RateLimit',
  version: 'WorkerVersionMetadata',
  durableObjects: 'DurableObjectNamespace',
  queues: 'Queue',
  workflows: 'Workflow',
  services: 'Fetcher',
  analytics: 'AnalyticsEngineDataset',
  ai: 'Ai',
  hyperdrive: 'Hyperdrive',
};
const FILE = 'worker-configuration.d.ts';

export function typesCommand(deps?: CommandDeps): Command {
  return new Command('types')
    .description(`write the types of env to ${FILE}; needs @cloudflare/workers-types in the project`)
    .argument('[file]', 'where to', FILE)
    .option('-e, --env <name>', "environment of wrangler's configuration")
    .option('--name <interface>', 'name of the interface', 'Env')
    .action(
      withSession(deps, async (session, file: string, flags: { env?: string; name: string }) => {
        const project = await session.project(undefined, flags.env === undefined ? {} : { env: flags.env });
        const path = resolve(session.terminal.cwd, file === FILE ? join(project.folder, FILE) : file);
        await writeFile(path, envTypes(project, flags.name));
        session.printer.result({ file: path }, path);
      }),
    );
}

/** @returns a declaration of an interface */
export function envTypes({ manifest, wrangler }: Project, name: string): string {
  const members = new Map<string, string>();
  const bound = envBindings(bindingSet(manifest.bindings ?? {}));
  const hidden = connectionSecrets(bound);
  for (const { binding, name: member } of bound) members.set(member, TYPES[binding.key] ?? 'unknown');
  if (manifest.assets?.binding) members.set(manifest.assets.binding, 'Fetcher');
  for (const [member, value] of Object.entries(manifest.vars ?? {})) members.set(member, typeOfValue(value));
  for (const member of [...Object.keys(manifest.secrets ?? {}), ...(wrangler?.secretNames ?? [])])
    if (!hidden.has(member)) members.set(member, 'string');
  const lines = [...members].map(
    ([member, type]) => `  ${/^[\w$]+$/.test(member) ? member : JSON.stringify(member)}: ${type};`,
  );
  return `// Made by turnpike types; do not edit.\ninterface ${name} {\n${lines.join('\n')}\n}\n`;
}

function typeOfValue(value: unknown): string {
  if (value === null) return 'null';
  if (Array.isArray(value)) return `(${[...new Set(value.map(typeOfValue))].join(' | ') || 'never'})[]`;
  if (typeof value !== 'object') return typeof value;
  const members = Object.entries(value).map(([name, member]) => `${JSON.stringify(name)}: ${typeOfValue(member)}`);
  return members.length === 0 ? 'Record<string, never>' : `{ ${members.join('; ')} }`;
}
