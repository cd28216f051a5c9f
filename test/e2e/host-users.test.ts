/** The real host where the machine’s user ids are mapped otherwise than on bare metal, as in containers. */
import { execFile } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { chown, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { commandOf, processTree } from '../bench/processes.ts';
import { deploy, mppFetch } from './support/callers.ts';
import { startHost, type TestHost } from './support/host.ts';
import { type UserNamespace, userNamespace } from './support/user-namespace.ts';

const TURNPIKE = fileURLToPath(new URL('../../scripts/turnpike.mjs', import.meta.url));
const COUNTS = `export default {
  async fetch(request, { DB }) {
    await DB.exec('CREATE TABLE IF NOT EXISTS visits (at TEXT)');
    await DB.exec("INSERT INTO visits VALUES ('now')");
    return Response.json(await DB.prepare('SELECT count(*) AS visits FROM visits').first());
  },
};`;
/** Handlers and databases, by the paths that they have inside. */
const TENANTS = /^\/bin\/(?:workerd serve|node .*\/app\/d1\.mjs)/;
const isRoot = process.getuid?.() === 0;

interface Place {
  name: string;
  /** What starts a program there. */
  enter(): Promise<UserNamespace>;
  /** What the start screen and the doctor say about the users of tenants. */
  says: RegExp;
  /** Whether each tenant has a user of its own. */
  apart: boolean;
  /** What the doctor advises. */
  fix: RegExp | undefined;
}

const alone = (...within: string[]) => ({ within, end: async () => undefined });
const PLACES: Place[] = [
  {
    name: 'one user id, which is root',
    enter: async () => alone('unshare', '--user', '--map-root-user'),
    says: /one user for the host and all tenants \(too few user ids are mapped here\)/,
    apart: false,
    fix: /map 65,536 user ids/,
  },
  {
    name: 'one user id, which is not root',
    enter: async () => alone('unshare', '--user', '--map-user=1000', '--map-group=1000'),
    says: /one user for the host and all tenants \(the host is not root\)/,
    apart: false,
    fix: undefined,
  },
  ...(isRoot
    ? [
        {
          // The first is root of the machine: a container's files may be for that one alone to read.
          name: '65,536 user ids',
          enter: () => userNamespace('0 0 1\n1 100000 65535\n'),
          says: /own user per tenant/,
          apart: true,
          fix: undefined,
        },
        {
          name: 'all user ids',
          enter: () => userNamespace('0 0 4294967295\n'),
          says: /own user per tenant/,
          apart: true,
          fix: undefined,
        },
      ]
    : []),
];

describe.each(PLACES)('with $name', ({ enter, says, apart, fix }) => {
  let place: UserNamespace;
  let host: TestHost;
  beforeAll(async () => {
    place = await enter();
    host = await startHost({ within: place.within });
  });
  afterAll(async () => {
    await host?.stop();
    await place?.end();
  });

  it('the host says which users tenants have', () => {
    expect(host.output()).toMatch(says);
  });

  it('tenants are deployed and called, with a database', async () => {
    const owner = mppFetch(host.network, 0);
    for (const slug of ['one', 'two']) {
      await deploy(owner, host.url, { slug, code: COUNTS, bindings: { d1: true } });
      expect(await (await fetch(`${host.url}/${slug}/`)).json()).toEqual({ visits: 1 });
    }
    const own = userOf(host.pid);
    const inside = processTree([host.pid]).filter((pid) => TENANTS.test(commandOf(pid)));
    expect(inside.length).toBeGreaterThanOrEqual(4);
    const users = new Set(inside.map(userOf));
    // Two handlers and two databases; two of them may have drawn the same number.
    if (apart) expect(users.size).toBeGreaterThanOrEqual(3);
    expect(users.has(own)).toBe(!apart);
    if (!apart) expect(users.size).toBe(1);
  });

  it('the doctor finds every attempt to break out contained, and says which users tenants have', async () => {
    const { findings } = await doctor(place.within);
    const sandbox = findings.find(({ name }) => name === 'sandbox');
    expect(sandbox?.detail).toMatch(says);
    expect(sandbox?.detail).toMatch(/attempts to break out failed/);
    if (fix) expect(sandbox).toMatchObject({ state: 'warning', fix: expect.stringMatching(fix) });
    else expect(sandbox?.state).toBe('ok');
  });
});

describe('a host that may make no namespaces', () => {
  const forbid = 'cd /proc/sys/user && echo 0 | tee max_user_namespaces max_mnt_namespaces && cd - && exec "$@"';
  let data: string;
  beforeAll(async () => {
    data = await mkdtemp(path.join(tmpdir(), 'tp-'));
  });
  afterAll(() => rm(data, { recursive: true, force: true }));

  it('does not start, and says where to read what it needs', async () => {
    const start = startHost({ data, within: ['unshare', '--user', '--map-root-user', 'sh', '-c', forbid, 'sh'] });
    await expect(start).rejects.toThrow(/No sandbox works on this machine .*config\/CONTAINER\.md says what/);
  });

  it('shows the operator’s token when it starts at last', async () => {
    const host = await startHost({ data });
    await host.stop();
    expect(host.output()).toMatch(/operator token \(shown once\): op_/);
  });
});

// As a service of systemd has it for ports below 1024.
it.runIf(isRoot)('a host that is not root and may bind low ports confines tenants by bubblewrap', async () => {
  // The other lets it read this checkout, which may lie in a folder that root alone may enter.
  const capabilities = '+net_bind_service,+dac_read_search';
  const data = await mkdtemp('/var/tmp/tp-');
  await chown(data, 65_534, 65_534);
  const host = await startHost({
    data,
    within: [
      'setpriv',
      '--reuid=65534',
      '--regid=65534',
      '--clear-groups',
      `--inh-caps=${capabilities}`,
      `--ambient-caps=${capabilities}`,
    ],
  });
  try {
    expect(host.output()).toMatch(/isolation +bwrap/);
  } finally {
    await host.stop();
    await rm(data, { recursive: true, force: true });
  }
});

/** The user of a process as this test sees it. */
function userOf(pid: number): string {
  return /^Uid:\s+(\d+)/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1] ?? '';
}

interface Examination {
  findings: { name: string; state: string; detail: string; fix?: string }[];
}

function doctor(within: string[]): Promise<Examination> {
  const [program = '', ...args] = [...within, process.execPath, TURNPIKE, 'doctor', '--json'];
  return new Promise((resolve, reject) => {
    // It may end with a fault: no host serves where it looks for one.
    execFile(program, args, { cwd: tmpdir() }, (_, stdout, stderr) => {
      try {
        resolve(JSON.parse(stdout) as Examination);
      } catch {
        reject(new Error(`the doctor said: ${stdout}${stderr}`));
      }
    });
  });
}
