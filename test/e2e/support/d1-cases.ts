/** The names of the D1 suites' cases: own ones and drizzle's. */
import { join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';

type Case = unknown | [unknown, Record<string, string>];

const fixtures = fileURLToPath(new URL('../../fixtures/bindings/', import.meta.url));
const load = async (file: string, name: string): Promise<Record<string, Case>> =>
  (await import(pathToFileURL(join(fixtures, file)).href))[name];
const cases = { ...(await load('d1-cases.js', 'd1Cases')), ...(await load('d1-drizzle.js', 'drizzleCases')) };

/** @param backend those that differ there are left out */
export function d1CaseNames(backend: string): string[] {
  return Object.entries(cases)
    .filter(([, entry]) => !(Array.isArray(entry) && backend in entry[1]))
    .map(([name]) => name);
}
