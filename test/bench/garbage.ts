/**
 * Has a host's processes collect their garbage, so that what is left is what they keep: Node collects when memory is
 * asked for, and one that does nothing after a load may keep all of its garbage for minutes, or none.
 */
import { readlinkSync } from 'node:fs';
import { setTimeout as delay } from 'node:timers/promises';
import { processTree } from './processes.ts';

/** Where Node's inspector listens that SIGUSR1 starts: one process at a time can have it. */
const INSPECTOR = '127.0.0.1:9229';
const TIMEOUT_MS = 20_000;

/** @param root of a tree; its programs that are not Node, and those with a network of their own, are left alone */
export async function collectGarbage(root: number): Promise<void> {
  for (const pid of processTree([root])) if (isReachableNode(pid)) await collect(pid);
}

function isReachableNode(pid: number): boolean {
  try {
    const link = (name: string, of: number | 'self') => readlinkSync(`/proc/${of}/${name}`);
    return link('exe', pid) === link('exe', 'self') && link('ns/net', pid) === link('ns/net', 'self');
  } catch {
    return false;
  }
}

async function collect(pid: number): Promise<void> {
  const deadline = performance.now() + TIMEOUT_MS;
  process.kill(pid, 'SIGUSR1');
  for (;;) {
    const inspected = await inspect().catch(() => undefined);
    if (inspected && (await inspected.evaluate('process.pid')) === pid) {
      await inspected.call('HeapProfiler.collectGarbage', {});
      // It waits for its callers to leave, so it must be told before, and do it after.
      await inspected.evaluate('void setTimeout(() => process._debugEnd(), 10)');
      inspected.close();
      break;
    }
    inspected?.close();
    if (performance.now() > deadline) throw new Error(`the inspector of process ${pid} did not answer at ${INSPECTOR}`);
    await delay(50);
  }
  while (await targets().catch(() => undefined)) {
    if (performance.now() > deadline) throw new Error(`the inspector of process ${pid} did not end`);
    await delay(20);
  }
}

/** @throws when nothing listens there */
async function targets() {
  return (await (await fetch(`http://${INSPECTOR}/json/list`)).json()) as { webSocketDebuggerUrl: string }[];
}

/** @throws when nothing listens there */
async function inspect() {
  const [target] = await targets();
  const socket = new WebSocket(target?.webSocketDebuggerUrl ?? '');
  await new Promise((resolve, reject) => {
    socket.onopen = resolve;
    socket.onerror = reject;
  });
  let lastId = 0;
  /** @see https://chromedevtools.github.io/devtools-protocol/v8/ */
  const call = (method: string, params: object) =>
    new Promise<{ result?: { value?: unknown } }>((resolve, reject) => {
      const id = ++lastId;
      socket.addEventListener('close', () => reject(new Error('the inspector went away')), { once: true });
      socket.addEventListener('message', ({ data }) => {
        const answer = JSON.parse(String(data)) as { id?: number; result: object };
        if (answer.id === id) resolve(answer.result);
      });
      socket.send(JSON.stringify({ id, method, params }));
    });
  return {
    call,
    evaluate: async (expression: string) => (await call('Runtime.evaluate', { expression })).result?.value,
    close: () => socket.close(),
  };
}
