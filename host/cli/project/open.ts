/** What deploy and update begin with: the project as it is on disk, judged before anything is sent. */
import { basename } from 'node:path';
import type { Session } from '../session.ts';
import { Failure } from '../terminal/failure.ts';
import { databaseVariables, localDatabases, onThisMachine } from './databases.ts';
import type { Project, ProjectFlags } from './manifest.ts';
import { readManifestSecrets, readSecretFiles, readSecretFlags } from './secrets.ts';
import { requireOffered } from './wrangler.ts';

/** @throws Failure `usage` where the project needs what the host does not have */
export async function openProject(session: Session, entry: string | undefined, flags: ProjectFlags): Promise<Project> {
  const project = await session.project(entry, flags);
  const { wrangler } = project;
  if (wrangler) {
    requireOffered(wrangler);
    for (const { key, reason } of wrangler.ignored)
      session.printer.progress(`note    ${basename(wrangler.path)}: ${key}: ${reason}`);
  }
  return project;
}

/** For `--json`: what wrangler's configuration says in vain here. */
export function ignoredOf({ wrangler }: Project): { ignored?: { key: string; reason: string }[] } {
  return wrangler && wrangler.ignored.length > 0 ? { ignored: wrangler.ignored } : {};
}

/** From where wrangler looks for connection strings, from the manifest, then from files, then from flags; later ones win. @throws Failure `usage` */
export async function projectSecrets(
  session: Session,
  project: Project,
  { secret = [], secretsFrom = [], local = false }: ProjectFlags,
): Promise<Record<string, string>> {
  const { terminal } = session;
  const found: Record<string, string> = {};
  for (const [variable, name] of databaseVariables(project, terminal.env)) {
    await session.allowVariable(project, variable, name);
    found[name] = terminal.env[variable] ?? '';
  }
  const secrets = {
    ...(local ? localDatabases(project) : {}),
    ...found,
    ...(await readManifestSecrets(project, terminal, (variable, name) =>
      session.allowVariable(project, variable, name),
    )),
    ...(await readSecretFiles(secretsFrom, terminal)),
    ...(await readSecretFlags(secret, terminal)),
  };
  return local ? onThisMachine(project, secrets).secrets : secrets;
}

/** @throws Failure `usage` where secrets are missing that wrangler's configuration requires */
export function requireSecrets({ wrangler }: Project, secrets: Record<string, string>): void {
  const missing = (wrangler?.secretNames ?? []).filter((name) => !Object.hasOwn(secrets, name));
  if (missing.length === 0) return;
  throw new Failure(
    'usage',
    `The project requires the secrets ${missing.join(', ')}. Give them: --secret ${missing[0]}=@file, or --secrets-from .dev.vars.`,
  );
}
