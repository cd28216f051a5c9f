/** `turnpike check`: everything of a deploy but the sending: configuration, bundle, static files, secrets. */
import { Command } from 'commander';
import { readStaticFiles } from './project/assets.ts';
import { bundleEntry } from './project/bundle.ts';
import { type ProjectFlags, projectSettings, slugOf } from './project/manifest.ts';
import { ignoredOf, openProject, projectSecrets, requireSecrets } from './project/open.ts';
import { addProjectOptions } from './project/options.ts';
import { type CommandDeps, type Session, withSession } from './session.ts';
import { table } from './terminal/printer.ts';

export function checkCommand(deps?: CommandDeps): Command {
  const command = new Command('check')
    .description('say what a deploy of this project would send, and what stands in its way; sends nothing')
    .argument('[entry]', 'file with the default export; default: as for deploy')
    .action(withSession(deps, check));
  return addProjectOptions(command);
}

async function check(session: Session, entry: string | undefined, flags: ProjectFlags): Promise<void> {
  const project = await openProject(session, entry, flags);
  const slug = slugOf(project, flags.slug);
  const files = project.manifest.assets && (await readStaticFiles(project.folder, project.manifest.assets));
  const file = entry ?? project.manifest.entry;
  const code =
    file === undefined
      ? undefined
      : await bundleEntry(file, project, entry === undefined ? undefined : session.terminal, flags);
  const secrets = await projectSecrets(session, project, flags);
  requireSecrets(project, secrets);
  const settings = projectSettings(project, flags, code);
  const ofFiles = [...(files?.files.values() ?? [])].reduce((sum, { bytes }) => sum + bytes, 0);
  const codeBytes = code && Buffer.byteLength(JSON.stringify(code.modules));
  const found = {
    slug,
    entry: file ?? null,
    codeBytes: codeBytes ?? null,
    staticFiles: files ? { files: files.files.size, bytes: ofFiles } : null,
    secrets: Object.keys(secrets),
    settings,
    ...ignoredOf(project),
  };
  const rows = [
    ['slug', slug],
    ...(file === undefined ? [] : [['code', `${file}, ${codeBytes} bytes`]]),
    ...(files ? [['files', `${files.files.size}, ${ofFiles} bytes`]] : []),
    ...Object.entries(settings).map(([name, value]) => [name, JSON.stringify(value)]),
    ...(found.secrets.length > 0 ? [['secrets', found.secrets.join(' ')]] : []),
    ...(found.ignored ?? []).map(({ key, reason }, index) => [index === 0 ? 'not used' : '', `${key}: ${reason}`]),
  ];
  session.printer.result(found, table(rows));
}
