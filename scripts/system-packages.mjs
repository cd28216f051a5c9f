// System programs that help Turnpike: which are missing, what installs them, and installing them.
// The list is config/system-packages.json, which `turnpike doctor` reads too. Plain JavaScript for Node 18 and newer.
import { spawn } from 'node:child_process';
import { accessSync, constants, readFileSync } from 'node:fs';
import { delimiter, join } from 'node:path';

const list = JSON.parse(readFileSync(new URL('../config/system-packages.json', import.meta.url), 'utf8'));

/** Missing programs; `purposes`: `run`, `test`. */
export function missingPrograms(purposes = ['run']) {
  return list.filter((one) => purposes.includes(one.for) && !isOnPath(one.program));
}

/** The command that a person can type, or undefined when nothing is missing. */
export function installCommand(missing) {
  if (missing.length === 0) return undefined;
  const sudo = process.getuid?.() === 0 ? '' : 'sudo ';
  return `${sudo}apt-get install -y ${missing.map((one) => one.debian).join(' ')}`;
}

/** Installs what is missing, as root on Debian and Ubuntu; elsewhere says what to install, and goes on without. */
export async function installSystemPackages(purposes) {
  const missing = missingPrograms(purposes);
  if (missing.length === 0) return;
  const names = missing.flatMap((one) => one.debian.split(' '));
  if (process.getuid?.() !== 0 || !isOnPath('apt-get')) {
    const how = isOnPath('apt-get') ? installCommand(missing) : 'with the package manager of this system';
    console.error(`turnpike: not root on Debian or Ubuntu; install these yourself: ${names.join(' ')}\n  ${how}`);
    return;
  }
  console.error(`turnpike: installing ${names.join(' ')} …`);
  await apt('update');
  if (await installPackages(names)) return;
  // One name that this release does not have must not keep the others away.
  for (const name of names) {
    if (!(await installPackages([name]))) console.error(`turnpike: ${name} could not be installed`);
  }
}

/** Debian packages, and nothing that they only recommend. @returns {Promise<boolean>} whether they are there now */
export function installPackages(names) {
  return apt('install', '--no-install-recommends', ...names);
}

/** Asks nothing, and waits for another apt-get, of a timer of the system's for example. */
function apt(...args) {
  const child = spawn('apt-get', ['-qq', '-y', '-o', 'DPkg::Lock::Timeout=600', ...args], {
    stdio: ['ignore', 2, 2],
    env: { ...process.env, DEBIAN_FRONTEND: 'noninteractive' },
  });
  return new Promise((resolve) => {
    child.once('error', () => resolve(false));
    child.once('exit', (code) => resolve(code === 0));
  });
}

function isOnPath(program) {
  return (process.env.PATH ?? '').split(delimiter).some((folder) => {
    try {
      accessSync(join(folder, program), constants.X_OK);
      return true;
    } catch {
      return false;
    }
  });
}
