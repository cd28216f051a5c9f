/** DNS-01 by a command of the operator's: `<command> set|clear _acme-challenge.<name> <value>`. */
import { execFile } from 'node:child_process';
import { AuthorityError } from './authority.ts';

const HOOK_MS = 300_000;

/** @param command a program and its first arguments, separated by spaces; no shell reads it */
export function dnsHook(command: string): (name: string, value: string, set: boolean) => Promise<void> {
  const [program = '', ...first] = command.split(' ').filter((part) => part !== '');
  return (name, value, set) =>
    new Promise((resolve, reject) => {
      const argv = [...first, set ? 'set' : 'clear', `_acme-challenge.${name}`, value];
      execFile(program, argv, { timeout: HOOK_MS }, (error, _stdout, stderr) => {
        if (error)
          reject(new AuthorityError(`tls.acme.dnsHook failed: ${stderr.trim() || error.message}`, 0, { cause: error }));
        else resolve();
      });
    });
}
