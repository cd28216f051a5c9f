/** `turnpike update`: the owner replaces code, secrets or settings. Costs nothing, and no request fails meanwhile. */
import { Command } from 'commander';
import { BINDINGS } from '../bindings/index.ts';
import { addressesOf } from './addresses.ts';
import type { HostClient } from './host-client.ts';
import { type Metadata, metadataText } from './metadata-view.ts';
import { readStaticFiles, type StaticFiles, sendStaticFiles } from './project/assets.ts';
import { bundleEntry } from './project/bundle.ts';
import { type Project, type ProjectFlags, projectSettings, slugKey, slugOf, withFlags } from './project/manifest.ts';
import { ignoredOf, openProject, projectSecrets } from './project/open.ts';
import { addProjectOptions } from './project/options.ts';
import { type CommandDeps, type Session, withSession } from './session.ts';
import { Failure } from './terminal/failure.ts';

/** Options that say more than which code: by their names in `ProjectFlags`. */
const SETTING_FLAGS: Record<string, string> = {
  secret: '--secret',
  secretsFrom: '--secrets-from',
  price: '--price',
  cron: '--cron',
  payTo: '--pay-to',
  notify: '--notify',
  compatibilityDate: '--compatibility-date',
  compatibilityFlag: '--compatibility-flag',
  ...Object.fromEntries(BINDINGS.map(({ key }) => [key, `--${key}`])),
};

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
  if (flags.preview) requireCodeAlone(flags);
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
    file === undefined ? {} : await bundleEntry(file, project, entry === undefined ? undefined : terminal, flags);
  if (flags.preview) return await upload(session, host, slug, code, files);
  const secretChanges = await projectSecrets(session, project, flags);
  const settings = projectSettings(project, flags, code);
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
  printer.result({ ...metadata, ...ignoredOf(project) }, metadataText(metadata, await addressesOf(metadata)));
}

/** What a manifest says of settings is for the live version; what is given here would be lost. @throws Failure `usage` */
function requireCodeAlone(flags: ProjectFlags): void {
  const given = Object.keys(SETTING_FLAGS).find((name) => flags[name] !== undefined);
  if (given === undefined) return;
  throw new Failure(
    'usage',
    `A preview has the settings and secrets of what is live: --preview takes no ${SETTING_FLAGS[given]}.`,
  );
}

interface Uploaded extends Metadata {
  preview: { version: number; id: string; url: string; subdomainUrl: string };
}

/** Code and static files alone: a preview has the settings and secrets of what is live. */
async function upload(
  { printer }: Session,
  host: HostClient,
  slug: string,
  code: object,
  files: StaticFiles | undefined,
): Promise<void> {
  const assets = files && (await sendStaticFiles(host, slug, files, (line) => printer.progress(line))).assets;
  const alone = Object.keys(code).length === 0;
  const uploaded = await host.own<Uploaded>('PUT', `/_admin/code/${encodeURIComponent(slug)}`, {
    preview: true,
    ...code,
    ...(assets ? { assets: alone ? { binding: 'ASSETS', ...assets } : assets } : {}),
  });
  const { version, url } = uploaded.preview;
  printer.progress(`version ${version} is not live: turnpike promote ${slug} ${version}`);
  printer.result(uploaded, url);
}
