/**
 * `turnpike deploy`: bundles, shows the price, pays. The host answers once the URL is live. With a deploy key it updates
 * what is there, and pays nothing.
 */
import { randomUUID } from 'node:crypto';
import { Command } from 'commander';
import { addressesOf } from './addresses.ts';
import type { HostClient } from './host-client.ts';
import type { Metadata } from './metadata-view.ts';
import { readStaticFiles, type StaticFiles, sendStaticFiles } from './project/assets.ts';
import { bundleEntry, FILES_ALONE } from './project/bundle.ts';
import { type ProjectFlags, projectSettings, slugKey, slugOf } from './project/manifest.ts';
import { ignoredOf, openProject, projectSecrets, requireSecrets } from './project/open.ts';
import { addProjectOptions } from './project/options.ts';
import { type CommandDeps, DEPLOY_KEY_VARIABLE, type Session, withSession } from './session.ts';
import { asFailure, Failure } from './terminal/failure.ts';
import { update } from './update.ts';

export function deployCommand(deps?: CommandDeps): Command {
  const command = new Command('deploy')
    .description('deploy a handler to a new slug; the paying wallet owns it')
    .argument('[entry]', 'file with the default export; default: "entry" of turnpike.json, "main" of wrangler.jsonc')
    .action(withSession(deps, deploy))
    .addHelpText(
      'after',
      `
In a folder with wrangler.jsonc, wrangler.json or wrangler.toml no argument is needed. What of it this host does not have
is named before anything is paid. With ${DEPLOY_KEY_VARIABLE} set it updates the deployment, without a wallet.

Examples:
  $ turnpike deploy --yes
  $ turnpike deploy ./src/index.ts --slug hello --kv --secret API_KEY=@key.txt --price "POST /v1/x=0.05"`,
    );
  return addProjectOptions(command);
}

export async function deploy(session: Session, entry: string | undefined, flags: ProjectFlags): Promise<void> {
  const { terminal, printer } = session;
  if (session.deployKey !== undefined || flags.preview) return await updateDeployed(session, entry, flags);
  const project = await openProject(session, entry, flags);
  const slug = slugOf(project, flags.slug);
  const files = project.manifest.assets && (await readStaticFiles(project.folder, project.manifest.assets));
  const file = entry ?? project.manifest.entry;
  if (file === undefined && !files)
    throw new Failure('usage', 'Which file? Give it, or "entry" in turnpike.json, or "main" in wrangler.jsonc.');
  if (file !== undefined) printer.progress(`bundle  ${file}`);
  const code =
    file === undefined
      ? FILES_ALONE
      : await bundleEntry(file, project, entry === undefined ? undefined : terminal, flags);
  const secrets = await projectSecrets(session, project, flags);
  requireSecrets(project, secrets);
  const body = {
    slug,
    ...code,
    ...projectSettings(project, flags, code),
    ...(Object.keys(secrets).length > 0 ? { secrets } : {}),
  };
  const host = await session.host();
  const answer = await host.pay<Metadata>('POST', '/_admin/deploy', body, randomUUID()).catch((error) => {
    throw error instanceof Failure && error.document?.code === 'slug_taken' ? takenHint(error, slug) : error;
  });
  printer.progress(`paid    ${answer.paid?.amount ?? '0'} USD`);
  await session.consent.remember(project.folder, slugKey(slug, host.origin));
  const metadata = files ? await addFiles(session, host, slug, files, file === undefined) : answer.body;
  const addresses = await addressesOf(metadata);
  printer.result({ ...metadata, paid: answer.paid ?? null, ...ignoredOf(project) }, addresses.join('\n'));
}

/** @throws Failure `usage` before anything is sent, where there is nothing to update */
async function updateDeployed(session: Session, entry: string | undefined, flags: ProjectFlags): Promise<void> {
  const slug = slugOf(await session.project(entry, flags), flags.slug);
  const host = await session.host();
  const found = await host.get<Metadata>(`/_admin/get/${encodeURIComponent(slug)}`).catch((error) => {
    if (error instanceof Failure && error.document?.code === 'not_found') return undefined;
    throw error;
  });
  if (found && found.state !== 'decommissioned') return await update(session, entry, flags);
  throw new Failure(
    'usage',
    `${slug} is not deployed at ${host.origin}, and ${flags.preview ? 'a preview is a version of what is there' : `${DEPLOY_KEY_VARIABLE} is set: a deploy key updates what is there, and pays for nothing`}. Deploy it once with the wallet that is to own it, without ${flags.preview ? '--preview' : 'the variable'}. Nothing was sent.`,
  );
}

/** The code is paid for and live; a failure from here on is made good by `turnpike update`. */
async function addFiles(
  { printer }: Session,
  host: HostClient,
  slug: string,
  files: StaticFiles,
  alone: boolean,
): Promise<Metadata> {
  try {
    const { assets } = await sendStaticFiles(host, slug, files, (line) => printer.progress(line));
    return await host.own<Metadata>('PUT', `/_admin/code/${encodeURIComponent(slug)}`, {
      assets: alone ? { binding: 'ASSETS', ...assets } : assets,
    });
  } catch (error) {
    const { exit, message, document } = asFailure(error);
    throw new Failure(
      exit,
      `${slug} is deployed and paid, but its static files are not there: ${message} Go on with turnpike update --slug ${slug}.`,
      document,
    );
  }
}

function takenHint(error: Failure, slug: string): Failure {
  return new Failure('refused', `${error.message} If it is yours: turnpike update --slug ${slug}.`, error.document);
}
