/** Turns the entry file of a project into the code that the host takes, npm imports included. */
import { stat } from 'node:fs/promises';
import { resolve } from 'node:path';
import { Problem } from '../../shared/problem.ts';
import { Failure } from '../terminal/failure.ts';

/** @throws Failure `usage` with file, line and column of each error */
export async function bundleEntry(entry: string, folder: string): Promise<{ modules: object; main: string }> {
  const path = resolve(folder, entry);
  const found = await stat(path).catch(() => undefined);
  if (!found?.isFile()) throw new Failure('usage', `There is no file ${path}.`);
  const { bundleProject } = await import('../../runtime/bundle-project.ts');
  try {
    return await bundleProject(path);
  } catch (error) {
    if (error instanceof Problem)
      throw new Failure('usage', `The code does not bundle: ${error.message}`, error.toDocument());
    throw error;
  }
}
