/** The host's own processes, without tenants' instances, which have limits of their own. */
import { commandOf, processTree } from '../bench/processes.ts';

const OWN = /(?:host|builtin-tenants)\/[\w/-]*main\.ts/;

/** By process id: the entry file. @param root the host's process */
export function ownProcesses(root: number): Map<number, string> {
  return new Map(
    processTree([root]).flatMap((pid): [number, string][] => {
      const name = OWN.exec(commandOf(pid))?.[0];
      return name === undefined ? [] : [[pid, name]];
    }),
  );
}
