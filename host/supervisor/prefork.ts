/** Forks the host's child processes. At startup it forks them early, so that they load their code while the supervisor loads its own. */
import { type ChildProcess, fork } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import hostProcess from '../../scripts/host-process.json' with { type: 'json' };
import { setProcessPriority } from '../shared/priority.ts';
import { withDescriptorTable } from './descriptor-table.ts';

/** Child processes of the host. */
export type ProcessName = 'storage' | 'egress' | 'edge';

/** Folder of each part's main.ts. */
const FOLDERS: Record<ProcessName, string> = {
  storage: '../bindings/store-process/',
  egress: '../egress/',
  edge: '../edge/',
};

const OPENSSL_CONFIG = fileURLToPath(new URL('../edge/tls/openssl.cnf', import.meta.url));
/** Flags of Node. */
const FLAGS: Record<ProcessName, string[]> = {
  // Bodies lie outside the heap, and only a collection frees them: collected young and often, they cause fewer full
  // collections (14 % fewer instructions for a put of 100 KiB). Full ones mark all that lives to free little, so they wait
  // until the heap has grown threefold (10 % fewer; 14 MB more under load).
  storage: ['--max-semi-space-size=4', '--heap-growing-percent=200'],
  egress: [],
  // Its heap is small and by V8's reckoning soon full: while many connections come and go, all of it was marked once a
  // second, on both cores for 13 ms. Beside two hundred answers that nobody reads a neighbour's p99 was 5.1 to 6.3 ms, and
  // is 3.9 to 5.3 with room. An idle edge is collected all the same.
  edge: [`--openssl-config=${OPENSSL_CONFIG}`, '--initial-old-space-size=64'],
};

/** Settings of the C library. */
const MALLOC: Record<ProcessName, Record<string, string>> = {
  storage: {},
  egress: {},
  // Where bodies and heads of callers lay between what stays, an edge kept 40 MB of what 3,000 callers had sent. Node puts
  // up to 128 KiB of HTTP/2 together for each write over TLS: with pages of their own for these, too, a download took a
  // third more CPU. Allowed to lie on the heap, they leave 20 MB there after a flood.
  edge: { ...hostProcess.env, MALLOC_MMAP_THRESHOLD_: '139264' },
};

/** Size of each process's descriptor table at its start. */
const DESCRIPTORS: Record<ProcessName, number> = {
  storage: 0,
  egress: 4_096,
  // A caller's connection and the instance's, for all requests that one slug may have under way.
  edge: 8_192,
};

const ahead: { name: ProcessName; process: ChildProcess }[] = [];

/** Forks processes that `takeProcess` returns later; unused ones end with this process. */
export function prefork(names: ProcessName[]): void {
  for (const name of names) ahead.push({ name, process: forkProcess(name) });
}

/** @returns a preforked process, or a new one; it waits for its `init` message */
export function takeProcess(name: ProcessName): ChildProcess {
  const index = ahead.findIndex((one) => one.name === name);
  const [found] = index < 0 ? [] : ahead.splice(index, 1);
  return found?.process.connected ? found.process : forkProcess(name);
}

function forkProcess(name: ProcessName): ChildProcess {
  const entry = fileURLToPath(new URL(`${FOLDERS[name]}main.ts`, import.meta.url));
  const { PATH = '', TZ, NODE_COMPILE_CACHE } = process.env;
  const child = withDescriptorTable(['ignore', 'inherit', 'inherit', 'ipc'], DESCRIPTORS[name], (stdio) =>
    fork(entry, [], {
      serialization: 'advanced',
      // Nothing else of the operator's environment is passed on: it may hold secrets.
      env: {
        NODE_ENV: 'production',
        PATH,
        ...MALLOC[name],
        ...(TZ ? { TZ } : {}),
        ...(NODE_COMPILE_CACHE ? { NODE_COMPILE_CACHE } : {}),
      },
      execArgv: ['--disable-warning=ExperimentalWarning', ...FLAGS[name]],
      stdio,
      // A session of its own, which has a weight of its own. It ends all the same when its channel closes.
      detached: true,
    }),
  );
  if (child.pid !== undefined) setProcessPriority(child.pid, name);
  return child;
}
