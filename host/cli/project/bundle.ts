/** Turns the entry file of a project into the code that the host takes, npm imports included. */
import { stat } from 'node:fs/promises';
import { dirname, resolve } from 'node:path';
import { Problem } from '../../shared/problem.ts';
import { Failure } from '../terminal/failure.ts';
import type { Project, ProjectFlags } from './manifest.ts';
import { isInside, pathInside } from './regular-file.ts';

/** Code of a deployment of static files alone; `env.ASSETS` is bound to them. */
export const FILES_ALONE = {
  code: 'export default { fetch: (request, env) => env.ASSETS?.fetch(request) ?? new Response("Not there yet", { status: 503 }) };',
};

/**
 * @param entry relative to the project, or to the working folder when the user gave it
 * @param given where the user was, when the user named the entry
 * @param flags `--root`, `--external`
 * @throws Failure `usage` with file, line and column of each error
 */
export async function bundleEntry(
  entry: string,
  project: Project,
  given: { cwd: string } | undefined,
  { root, external }: Pick<ProjectFlags, 'root' | 'external'>,
): Promise<{ modules: object; main: string }> {
  const path = resolve(given?.cwd ?? project.folder, entry);
  const found = await stat(path).catch(() => undefined);
  if (!found?.isFile()) {
    const { command } = project.wrangler?.build ?? {};
    throw new Failure('usage', `There is no file ${path}.${command ? ` The project is built first: ${command}` : ''}`);
  }
  if (given === undefined) {
    await pathInside(project.folder, entry).catch(() => {
      throw new Failure('usage', `"entry" leads out of the project: ${entry}. Give the file yourself.`);
    });
  }
  const { bundleProject } = await import('../../runtime/bundle-project.ts');
  try {
    return await bundleProject(path, {
      ...project.build,
      external,
      root: root === undefined ? rootOf(path, project, given) : resolve(given?.cwd ?? project.folder, root),
    });
  } catch (error) {
    if (error instanceof Problem)
      throw new Failure('usage', `The code does not bundle: ${error.message}`, error.toDocument());
    throw error;
  }
}

/** The manifest's folder; without one where the command was called, if the entry is there, or the entry's own folder. */
function rootOf(path: string, { folder, found }: Project, given: { cwd: string } | undefined): string {
  if (found && isInside(folder, path)) return folder;
  return given && isInside(given.cwd, path) ? given.cwd : dirname(path);
}
