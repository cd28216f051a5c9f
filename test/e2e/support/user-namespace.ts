/** User namespaces as containers have them, with the ids that a test wants in them. Needs root. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readlinkSync, writeFileSync } from 'node:fs';
import { until } from './until.ts';

export interface UserNamespace {
  /** What starts a program as user 0 of the namespace: goes in front of the program and its arguments. */
  within: string[];
  end(): Promise<void>;
}

/** @param map of users and of groups, as in /proc/self/uid_map; user_namespaces(7) */
export async function userNamespace(map: string): Promise<UserNamespace> {
  // It ends with the test, however that ends.
  const holder = spawn('unshare', ['--user', 'cat'], { stdio: ['pipe', 'ignore', 'inherit'] });
  const ended = once(holder, 'close');
  const namespaceOf = (pid: number | 'self') => readlinkSync(`/proc/${pid}/ns/user`);
  await until(
    () => holder.pid !== undefined && namespaceOf(holder.pid) !== namespaceOf('self'),
    () => 'there is no user namespace',
  );
  for (const kind of ['uid', 'gid']) writeFileSync(`/proc/${holder.pid}/${kind}_map`, map);
  return {
    within: ['nsenter', '--user', '--target', String(holder.pid)],
    async end() {
      holder.stdin.end();
      await ended;
    },
  };
}
