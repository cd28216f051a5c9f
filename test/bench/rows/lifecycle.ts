/** Rows about starting and changing: cold start, deploy to live under load, WebSocket echo. */
import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import http from 'node:http';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { WebSocket } from 'ws';
import { jsonPut, mppFetch } from '../../e2e/support/callers.ts';
import { until } from '../../e2e/support/until.ts';
import { load, median } from '../load.ts';
import { startTurnpike } from '../peers/turnpike.ts';
import { startWorkerd, WORKERD } from '../peers/workerd.ts';
import { cpuSeconds } from '../processes.ts';
import { judge, type RowResult, round } from '../table.ts';
import { ECHO_SOCKET, HELLO } from '../workers.ts';

const COLD_STARTS = 21;
const DEPLOYS = 11;

export function lifecycleRows(): { id: string; run(): Promise<RowResult> }[] {
  return [
    { id: 'cold-start', run: coldStart },
    { id: 'deploy', run: deployToLive },
    { id: 'websocket', run: webSocketEcho },
  ];
}

/** From the request to its whole answer, ms; the request is repeated until somebody listens. */
async function firstAnswer(options: http.RequestOptions): Promise<number> {
  const from = performance.now();
  for (;;) {
    const ok = await new Promise<boolean>((resolve) => {
      const request = http.get({ ...options, agent: false }, (response) => {
        response.resume();
        response.on('end', () => resolve(response.statusCode === 200));
      });
      request.on('error', () => resolve(false));
    });
    if (ok) return performance.now() - from;
    if (performance.now() - from > 10_000) throw new Error('no answer within 10 s');
    await new Promise((resolve) => setImmediate(resolve));
  }
}

async function bareStart(folder: string): Promise<number> {
  const socketPath = path.join(folder, 'http.sock');
  rmSync(socketPath, { force: true });
  const from = performance.now();
  const child = spawn(WORKERD, ['serve', path.join(folder, 'config.capnp')], { stdio: 'ignore' });
  const exited = new Promise((resolve) => child.once('exit', resolve));
  await firstAnswer({ socketPath, path: '/' });
  const ms = performance.now() - from;
  child.kill('SIGKILL');
  await exited;
  return ms;
}

async function coldStart(): Promise<RowResult> {
  const folder = mkdtempSync(path.join(tmpdir(), 'bench-cold-'));
  writeFileSync(path.join(folder, 'worker.js'), HELLO);
  writeFileSync(
    path.join(folder, 'config.capnp'),
    `using Workerd = import "/workerd/workerd.capnp";
const config :Workerd.Config = (
  services = [(name = "main", worker = (modules = [(name = "worker.js", esModule = embed "worker.js")], compatibilityDate = "2026-11-01"))],
  sockets = [(name = "unix", address = "unix:${path.join(folder, 'http.sock')}", http = (), service = "main")]);
`,
  );
  const subject = await startTurnpike(
    HELLO,
    {},
    { flags: { 'runtime-idle-ms': '100', 'runtime-bloated-idle-ms': '100' } },
  );
  try {
    const bare: number[] = [];
    const ours: number[] = [];
    for (let turn = 0; turn < COLD_STARTS; turn++) {
      bare.push(await bareStart(folder));
      await until(async () => {
        const meta = (await (await fetch(`${subject.host.url}/_admin/get/bench`)).json()) as {
          runtime: { state: string };
        };
        return meta.runtime.state === 'cold' ? true : undefined;
      });
      ours.push(await firstAnswer({ host: '127.0.0.1', port: subject.host.port, path: '/bench/' }));
    }
    const row = (name: string, values: number[]) => ({
      subject: name,
      cells: {
        'p50 ms': round(median(values)),
        'worst ms': round(Math.max(...values)),
      },
    });
    const ratios = ours.map((value, turn) => value / (bare[turn] ?? Number.NaN));
    return {
      id: 'cold-start',
      title: 'Cold start to the first answer (ours sandboxed and through the edge)',
      figures: [row('Turnpike', ours), row('bare workerd', bare)],
      targets: [judge('p50', '≤ 1.4 × bare workerd', ratios)],
      skipped: [],
    };
  } finally {
    await subject.stop();
    rmSync(folder, { recursive: true, force: true });
  }
}

async function deployToLive(): Promise<RowResult> {
  const subject = await startTurnpike(HELLO);
  try {
    const owner = mppFetch(subject.host.network, 0);
    const issued = (await (await owner(`${subject.host.url}/_admin/session/bench`, { method: 'POST' })).json()) as {
      token: string;
    };
    const times: number[] = [];
    const loaded = load({ url: `${subject.origin}/`, seconds: 8, connections: 8 }, []);
    for (let turn = 0; turn < DEPLOYS; turn++) {
      const text = `v${turn}`;
      const from = performance.now();
      const init = jsonPut({ code: `export default { fetch: () => new Response('${text}') }` });
      const answer = await fetch(`${subject.host.url}/_admin/code/bench`, {
        ...init,
        headers: { ...(init.headers as Record<string, string>), authorization: `Bearer ${issued.token}` },
      });
      if (!answer.ok) throw new Error(`update answered ${answer.status}: ${await answer.text()}`);
      const live = await (await fetch(`${subject.origin}/`)).text();
      if (live !== text) throw new Error(`after the update the slug answers ${live}`);
      times.push(performance.now() - from);
    }
    const { errors, perSecond } = await loaded;
    return {
      id: 'deploy',
      title: 'Update (PUT code) to live, while the slug is under load',
      figures: [
        {
          subject: 'Turnpike',
          cells: {
            'p50 ms': round(median(times)),
            'worst ms': round(Math.max(...times)),
            'failed requests': String(errors),
            'req/s meanwhile': round(perSecond),
          },
        },
      ],
      targets: [judge('p50', '≤ 150 ms', times), judge('failed requests', '≤ 0', [errors])],
      skipped: [],
    };
  } finally {
    await subject.stop();
  }
}

/** One message at a time on each of eight sockets, for two seconds. */
async function echo(url: string, pids: number[]): Promise<{ perSecond: number; cpuMicros: number }> {
  const sockets = await Promise.all(
    Array.from({ length: 8 }, async () => {
      const socket = new WebSocket(url);
      await new Promise((resolve, reject) => {
        socket.once('open', resolve);
        socket.once('error', reject);
      });
      return socket;
    }),
  );
  let messages = 0;
  const before = cpuSeconds(pids);
  const deadline = performance.now() + 2_000;
  await Promise.all(
    sockets.map(
      (socket) =>
        new Promise<void>((resolve) => {
          socket.on('message', () => {
            messages += 1;
            if (performance.now() < deadline) socket.send('ping');
            else resolve();
          });
          socket.send('ping');
        }),
    ),
  );
  const cpuMicros = ((cpuSeconds(pids) - before) * 1e6) / messages;
  for (const socket of sockets) socket.terminate();
  return { perSecond: messages / 2, cpuMicros };
}

async function webSocketEcho(): Promise<RowResult> {
  const bare = await startWorkerd(ECHO_SOCKET);
  const subject = await startTurnpike(ECHO_SOCKET).catch(async (error) => {
    await bare.stop();
    throw error;
  });
  try {
    const runs = {
      ours: [] as { perSecond: number; cpuMicros: number }[],
      bare: [] as { perSecond: number; cpuMicros: number }[],
    };
    for (let turn = 0; turn < 3; turn++) {
      runs.ours.push(await echo(`${subject.origin.replace('http', 'ws')}/`, subject.pids()));
      runs.bare.push(await echo(`${bare.origin.replace('http', 'ws')}/`, bare.pids()));
    }
    const row = (name: string, list: { perSecond: number; cpuMicros: number }[]) => ({
      subject: name,
      cells: {
        'messages/s': round(median(list.map(({ perSecond }) => perSecond))),
        'CPU µs': round(median(list.map(({ cpuMicros }) => cpuMicros))),
      },
    });
    return {
      id: 'websocket',
      title: 'WebSocket echo (8 sockets)',
      figures: [row('Turnpike', runs.ours), row('bare workerd', runs.bare)],
      targets: [
        judge(
          'CPU a message',
          '≤ 1.5 × bare workerd',
          runs.ours.map(({ cpuMicros }, turn) => cpuMicros / (runs.bare[turn]?.cpuMicros ?? Number.NaN)),
        ),
      ],
      skipped: [],
    };
  } finally {
    await subject.stop();
    await bare.stop();
  }
}
