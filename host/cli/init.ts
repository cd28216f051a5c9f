/** `turnpike init`: a project from a template, a folder in templates/ each. */
import { existsSync } from 'node:fs';
import { cp, mkdir, readdir, readFile } from 'node:fs/promises';
import { join, relative, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { Argument, Command, Option } from 'commander';
import { type CommandDeps, type Session, withSession } from './session.ts';
import { Failure } from './terminal/failure.ts';

const TEMPLATES_FOLDER = fileURLToPath(new URL('templates/', import.meta.url));
/** The command as a package of its own has no host to run. */
const HOST = new URL('../main.ts', import.meta.url);
/** Name of a template -> what it is. */
export const TEMPLATES: Record<string, string> = {
  hello: 'a handler with a KV binding',
  hono: 'Hono with JSX',
  'paid-api': 'a route that costs 0.01 USD',
  'static-site': 'static files alone',
  'd1-drizzle': 'SQL with drizzle and migrations',
  'speech-caller': 'a handler that calls the speech service',
};

export function initCommand(deps?: CommandDeps): Command {
  return new Command('init')
    .description('make a project from a template')
    .addArgument(new Argument('[folder]', 'where to; it has to be empty, or not there').default('.'))
    .addOption(new Option('-t, --template <name>', 'which one').choices(Object.keys(TEMPLATES)).default('hello'))
    .action(withSession(deps, init))
    .addHelpText(
      'after',
      `\nTemplates:\n${Object.entries(TEMPLATES)
        .map(([name, what]) => `  ${name.padEnd(14)}${what}`)
        .join('\n')}`,
    );
}

async function init(session: Session, folder: string, { template }: { template: string }): Promise<void> {
  const { terminal, printer } = session;
  const target = resolve(terminal.cwd, folder);
  const present = await readdir(target).catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return [];
    throw new Failure('usage', `${target} cannot be read (${error.code}).`);
  });
  // A repository that was just made counts as empty.
  if (present.some((name) => name !== '.git'))
    throw new Failure('usage', `${target} is not empty. Name another folder.`);
  await mkdir(target, { recursive: true });
  await cp(join(TEMPLATES_FOLDER, template), target, { recursive: true });
  const files = (await readdir(target, { recursive: true, withFileTypes: true }))
    .filter((entry) => entry.isFile() && !entry.parentPath.includes('.git'))
    .map((entry) => relative(target, join(entry.parentPath, entry.name)))
    .sort();
  const packages = await readFile(join(target, 'package.json'), 'utf8').catch(() => undefined);
  const steps = [
    ...(folder === '.' ? [] : [`cd ${folder}`]),
    ...(packages === undefined ? [] : ['npm install']),
    ...(existsSync(HOST) ? ['turnpike dev'] : []),
    'turnpike deploy',
  ];
  printer.result(
    { folder: target, template, files, next: steps },
    `${files.join('\n')}\n\nNext:\n${steps.map((step) => `  $ ${step}`).join('\n')}`,
  );
}
