/** `turnpike update`: the owner replaces code, secrets or settings. Costs nothing, and no request fails meanwhile. */
import { Command } from 'commander';
import { type Metadata, metadataText } from './metadata-view.ts';
import { readStaticFiles, sendStaticFiles } from './project/assets.ts';
import { bundleEntry } from './project/bundle.ts';
import { type Project, type ProjectFlags, projectSettings, slugKey, slugOf, withFlags } from './project/manifest.ts';
import { ignoredOf, openProject, projectSecrets } from './project/open.ts';
import { addProjectOptions } from './project/options.ts';
import { type CommandDeps, type Session, withSession } from './session.ts';

export function updateCommand(deps?: CommandDeps): Command {
  const command = new Command('update')
    .description('replace code, secrets or settings of your deployment; free')
    .argument('[entry]', 'file with the default export; default: "entry" of turnpike.json; neither: settings only')
    .action(withSession(deps, update));
  return addProjectOptions(command);
}

/**
 * A project that was downloaded may name any slug: its code would run with the secrets and the data of that one. The
 * deploy from the same folder, or the user, says that it is this project's.
 */
function requireSlug({ consent }: Session, { folder }: Project, slug: string, origin: string): Promise<void> {
  return consent.require(folder, {
    key: slugKey(slug, origin),
    question: `The project names ${slug} on ${origin}, which was not deployed from here. Replace its code?`,
    otherwise: `Confirm it with --slug ${slug}, or once at a terminal.`,
  });
}

export async function update(session: Session, entry: string | undefined, flags: ProjectFlags): Promise<void> {
  const { terminal, printer } = session;
  const project = await openProject(session, entry, flags);
  const slug = slugOf(project, flags.slug);
  const host = await session.host();
  // Whoever set a key said by that what may be changed.
  if (flags.slug === undefined && session.deployKey === undefined)
    await requireSlug(session, project, slug, host.origin);
  const file = entry ?? project.manifest.entry;
  if (file !== undefined) printer.progress(`bundle  ${file}`);
  const files = project.manifest.assets && (await readStaticFiles(project.folder, project.manifest.assets));
  const code =
    file === undefined ? {} : await bundleEntry(file, project, entry === undefined ? undefined : terminal, flags.root);
  const secretChanges = await projectSecrets(session, project, flags);
  const settings = projectSettings(project, flags);
  if (settings.bindings && !project.manifest.bindings) {
    // Flags add to what it has: the host takes bindings as a whole.
    const { bindings } = await host.get<Metadata>(`/_admin/get/${encodeURIComponent(slug)}`);
    settings.bindings = withFlags(bindings, flags);
  }
  const assets = files && (await sendStaticFiles(host, slug, files, (line) => printer.progress(line))).assets;
  const body = {
    ...code,
    ...(assets ? { assets: file === undefined ? { binding: 'ASSETS', ...assets } : assets } : {}),
    ...settings,
    ...(Object.keys(secretChanges).length > 0 ? { secretChanges } : {}),
  };
  const metadata = await host.own<Metadata>('PUT', `/_admin/code/${encodeURIComponent(slug)}`, body);
  printer.result({ ...metadata, ...ignoredOf(project) }, metadataText(metadata));
}
