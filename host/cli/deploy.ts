/** `turnpike deploy`: bundles, shows the price, pays. The host answers once the URL is live. */
import { randomUUID } from 'node:crypto';
import { Command } from 'commander';
import type { Metadata } from './metadata-view.ts';
import { bundleEntry } from './project/bundle.ts';
import { type ProjectFlags, projectSettings, slugKey, slugOf } from './project/manifest.ts';
import { ignoredOf, openProject, projectSecrets, requireSecrets } from './project/open.ts';
import { addProjectOptions } from './project/options.ts';
import { type CommandDeps, type Session, withSession } from './session.ts';
import { Failure } from './terminal/failure.ts';

export function deployCommand(deps?: CommandDeps): Command {
  const command = new Command('deploy')
    .description('deploy a handler to a new slug; the paying wallet owns it')
    .argument('[entry]', 'file with the default export; default: "entry" of turnpike.json, "main" of wrangler.jsonc')
    .action(withSession(deps, deploy))
    .addHelpText(
      'after',
      `
In a folder with wrangler.jsonc, wrangler.json or wrangler.toml no argument is needed. What of it this host does not have
is named before anything is paid.

Examples:
  $ turnpike deploy --yes
  $ turnpike deploy ./src/index.ts --slug hello --kv --secret API_KEY=@key.txt --price "POST /v1/x=0.05"`,
    );
  return addProjectOptions(command);
}

async function deploy(session: Session, entry: string | undefined, flags: ProjectFlags): Promise<void> {
  const { terminal, printer } = session;
  const project = await openProject(session, entry, flags);
  const slug = slugOf(project, flags.slug);
  const file = entry ?? project.manifest.entry;
  if (file === undefined)
    throw new Failure('usage', 'Which file? Give it, or "entry" in turnpike.json, or "main" in wrangler.jsonc.');
  printer.progress(`bundle  ${file}`);
  const code = await bundleEntry(file, project, entry === undefined ? undefined : terminal, flags.root);
  const secrets = await projectSecrets(session, project, flags);
  requireSecrets(project, secrets);
  const body = {
    slug,
    ...code,
    ...projectSettings(project, flags),
    ...(Object.keys(secrets).length > 0 ? { secrets } : {}),
  };
  const host = await session.host();
  const answer = await host.pay<Metadata>('POST', '/_admin/deploy', body, randomUUID()).catch((error) => {
    throw error instanceof Failure && error.document?.code === 'slug_taken' ? takenHint(error, slug) : error;
  });
  printer.progress(`paid    ${answer.paid?.amount ?? '0'} USD`);
  await session.consent.remember(project.folder, slugKey(slug, host.origin));
  printer.result({ ...answer.body, paid: answer.paid ?? null, ...ignoredOf(project) }, `${answer.body.url}`);
}

function takenHint(error: Failure, slug: string): Failure {
  return new Failure('refused', `${error.message} If it is yours: turnpike update --slug ${slug}.`, error.document);
}
