/** A store of a deployment, as the commands d1, kv, r2, queues, workflows and analytics reach it: through the owner's endpoints, as its own handler sees it. */
import type { Command } from 'commander';
import { boundBindings } from '../bindings/index.ts';
import type { Metadata } from './metadata-view.ts';
import { type Project, slugOf } from './project/manifest.ts';
import type { Session } from './session.ts';
import { Failure } from './terminal/failure.ts';

export interface DataFlags {
  slug?: string;
  env?: string;
}

export interface DataStore {
  /** In env. */
  binding: string;
  project: Project;
  /** @param query without those that are undefined */
  ask(
    method: string,
    place: '' | '/value',
    query?: Query,
    body?: Uint8Array | object,
    fields?: Record<string, string>,
  ): Promise<Response>;
}

type Query = Record<string, string | undefined>;

/** Options that all of them have. */
export function addDataOptions(command: Command): Command {
  return command
    .option('--slug <name>', "name of the deployment; default: the project's")
    .option('-e, --env <name>', "environment of wrangler's configuration")
    .option('--local', 'the data of turnpike dev, which has to run');
}

/**
 * @param named name of the binding; a D1 database also by its name in wrangler's configuration, a workflow by its own. Undefined: the only one.
 * @throws Failure `usage`
 */
export async function openDataStore(
  session: Session,
  kind: 'kv' | 'd1' | 'r2' | 'queues' | 'workflows' | 'analytics',
  named: string | undefined,
  flags: DataFlags,
): Promise<DataStore> {
  const project = await session.project(undefined, flags.env === undefined ? {} : { env: flags.env });
  const slug = slugOf(project, flags.slug);
  const host = await session.host();
  const [alias] =
    Object.entries(project.wrangler?.d1 ?? {}).find(([, one]) => kind === 'd1' && one.databaseName === named) ?? [];
  const metadata = () => host.get<Metadata>(`/_admin/get/${encodeURIComponent(slug)}`);
  const binding =
    alias ??
    (named !== undefined && kind === 'workflows' ? workflowBinding(await metadata(), named) : named) ??
    (await onlyBinding(await metadata(), kind));
  const token = host.tokens(slug);
  return {
    binding,
    project,
    async ask(method, place, query = {}, body, fields) {
      const asked = new URLSearchParams(
        Object.entries(query).filter((entry): entry is [string, string] => entry[1] !== undefined),
      );
      const path = `/_admin/${encodeURIComponent(slug)}/data/${encodeURIComponent(binding)}${place}?${asked}`;
      return host.rawWithToken(await token(), method, path, body, fields);
    },
  };
}

function workflowBinding({ bindings }: Metadata, named: string): string {
  const bound = boundBindings({ workflows: bindings.workflows ?? false });
  return (
    (bound.find(({ name }) => name === named) ?? bound.find(({ settings }) => settings.name === named))?.name ?? named
  );
}

async function onlyBinding({ slug, bindings }: Metadata, kind: string): Promise<string> {
  const asked = bindings[kind];
  const names = boundBindings({ [kind]: asked ?? false }).map(({ name }) => name);
  const [name] = names;
  if (name !== undefined && names.length === 1) return name;
  throw new Failure(
    'usage',
    names.length === 0 ? `${slug} has no binding of this kind.` : `Which one? ${slug} has ${names.join(', ')}.`,
  );
}
