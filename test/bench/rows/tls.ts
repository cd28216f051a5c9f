/** Rows about TLS: handshakes and HTTP/2 beside Caddy's, and what the certificates of a thousand domains take. */
import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import { copyFileSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { connect } from 'node:tls';
import { promisify } from 'node:util';
import { selfSigned } from '../../e2e/support/authority.ts';
import { deploy, jsonPost, mppFetch } from '../../e2e/support/callers.ts';
import { startHost, type TestHost } from '../../e2e/support/host.ts';
import { freePort } from '../../e2e/support/ports.ts';
import { median } from '../load.ts';
import { installed, startProgram, stopProgram } from '../peers/programs.ts';
import { startTurnpike } from '../peers/turnpike.ts';
import { startWorkerd } from '../peers/workerd.ts';
import { commandOf, cpuSeconds, privateOf, processTree } from '../processes.ts';
import { judge, type RowResult, round } from '../table.ts';
import { HELLO, TEN_MB } from '../workers.ts';

const NAME = 'bench.tenants.test';
const ROUNDS = 3;
const WARM_UP_ROUNDS = 3;
const DOMAINS = 1_000;
const DOMAINS_PER_SLUG = 100;

interface TlsSubject {
  name: string;
  port: number;
  pids(): number[];
  stop(): Promise<void>;
}

interface Files {
  cert: string;
  key: string;
}

async function startOurs(code: string, files: Files): Promise<TlsSubject> {
  const port = await freePort();
  const { name, pids, stop } = await startTurnpike(
    code,
    {},
    {
      flags: {
        'base-domain': 'tenants.test',
        'tls-mode': 'files',
        'tls-port': String(port),
        'tls-certificates': JSON.stringify([{ names: ['*.tenants.test'], ...files }]),
      },
    },
  );
  return { name, port, pids, stop };
}

async function startCaddy(code: string, files: Files): Promise<TlsSubject> {
  const backend = await startWorkerd(code);
  const folder = mkdtempSync(path.join(tmpdir(), 'bench-caddy-'));
  const file = path.join(folder, 'Caddyfile');
  const port = await freePort();
  writeFileSync(
    file,
    `{
  admin off
  auto_https disable_redirects
  storage file_system ${folder}
}
https://${NAME}:${port} {
  bind 127.0.0.1
  tls ${files.cert} ${files.key}
  reverse_proxy unix/${backend.socket}
}
`,
  );
  const child = await startProgram('caddy', ['run', '--config', file, '--adapter', 'caddyfile'], port, {
    HOME: folder,
  });
  return {
    name: 'Caddy',
    port,
    pids: () => [child.pid ?? 0, ...backend.pids()],
    async stop() {
      await stopProgram(child);
      await backend.stop();
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

interface Measured {
  perSecond: number;
  cpuMicros: number;
}

/** @throws Error where a request failed: such a figure would be worth nothing */
async function h2load(subject: TlsSubject, args: string[]): Promise<Measured> {
  const before = cpuSeconds(subject.pids());
  const from = performance.now();
  const { stdout } = await promisify(execFile)('h2load', [
    ...args,
    `--connect-to=127.0.0.1:${subject.port}`,
    `https://${NAME}:${subject.port}/`,
  ]);
  const seconds = (performance.now() - from) / 1000;
  const cpu = cpuSeconds(subject.pids()) - before;
  const [, done = '0'] = /(\d+) succeeded/.exec(stdout) ?? [];
  const [, failed = '0'] = /(\d+) failed/.exec(stdout) ?? [];
  const [, good = '0'] = /status codes: (\d+) 2xx/.exec(stdout) ?? [];
  if (Number(done) === 0 || Number(failed) > 0 || good < done) {
    throw new Error(`${subject.name}: h2load said: ${stdout}`);
  }
  const [, rate] = /finished in [^,]+, ([0-9.]+) req\/s/.exec(stdout) ?? [];
  return { perSecond: Number(rate ?? Number(done) / seconds), cpuMicros: (cpu * 1e6) / Number(done) };
}

async function beside(
  code: string,
  warmUp: string[],
  args: string[],
): Promise<{ runs: Map<string, Measured[]>; skipped: string[] }> {
  const folder = mkdtempSync(path.join(tmpdir(), 'bench-tls-'));
  const files = { cert: path.join(folder, 'tls.crt'), key: path.join(folder, 'tls.key') };
  const subjects: TlsSubject[] = [];
  const skipped: string[] = [];
  const noLoad = installed('h2load');
  if (noLoad) throw new Error(`${noLoad}: apt-get install nghttp2-client`);
  try {
    selfSigned(['*.tenants.test'], files);
    subjects.push(await startOurs(code, files));
    const missing = installed('caddy');
    if (missing) skipped.push(`Caddy: ${missing}`);
    else subjects.push(await startCaddy(code, files));
    const runs = new Map<string, Measured[]>();
    // As servers that have run for a while: what is compiled on the way is compiled.
    for (let turn = 0; turn < WARM_UP_ROUNDS; turn++) for (const subject of subjects) await h2load(subject, warmUp);
    for (let turn = 0; turn < ROUNDS; turn++) {
      for (const subject of subjects) {
        runs.set(subject.name, [...(runs.get(subject.name) ?? []), await h2load(subject, args)]);
      }
    }
    return { runs, skipped };
  } finally {
    for (const subject of subjects) await subject.stop();
    rmSync(folder, { recursive: true, force: true });
  }
}

async function compared(
  row: { id: string; title: string; column: string; factor?: number },
  code: string,
  warmUp: string[],
  args: string[],
): Promise<RowResult> {
  const { runs, skipped } = await beside(code, warmUp, args);
  const { factor = 1 } = row;
  const rates = (subject: string) => runs.get(subject)?.map(({ perSecond }) => perSecond);
  const ours = rates('Turnpike') ?? [];
  const ratios = rates('Caddy')?.map((rate, turn) => (ours[turn] ?? Number.NaN) / rate);
  return {
    id: row.id,
    title: row.title,
    figures: [...runs].map(([subject, list]) => {
      const perSecond = median(list.map((one) => one.perSecond));
      return {
        subject,
        cells: {
          [row.column]: round(perSecond * factor),
          'CPU µs': round(median(list.map(({ cpuMicros }) => cpuMicros))),
          'ours ÷ it': round(median(ours) / perSecond),
        },
      };
    }),
    targets: ratios ? [judge(row.column, '≥ 1 × Caddy', ratios)] : [],
    skipped,
  };
}

/** A thousand domains of ten slugs, each with its certificate in the folder, as after they were issued. */
async function startMany(): Promise<{ host: TestHost; tlsPort: number }> {
  const token = 'registrar-of-the-bench';
  const registrar = JSON.stringify([createHash('sha256').update(token).digest('hex')]);
  const flags = { 'log-level': 'error', 'domains-registrar-tokens': registrar };
  const data = mkdtempSync(path.join(tmpdir(), 'tp-'));
  let host = await startHost({ data, flags });
  for (let index = 0; index < DOMAINS / DOMAINS_PER_SLUG; index++) {
    await deploy(mppFetch(host.network, 0), host.url, { slug: `many${index}`, code: HELLO });
  }
  for (let index = 0; index < DOMAINS; index++) {
    const slug = `many${Math.floor(index / DOMAINS_PER_SLUG)}`;
    const body = { domain: `d${index}.many.test`, registrarToken: token };
    const answer = await fetch(`${host.url}/_admin/${slug}/domains`, jsonPost(body));
    if (answer.status !== 202) throw new Error(await answer.text());
    await answer.arrayBuffer();
  }
  await host.stop();
  const folder = path.join(data, 'certificates');
  const files = { cert: path.join(data, 'many.crt'), key: path.join(data, 'many.key') };
  selfSigned(['*.many.test'], files);
  const certificate = readFileSync(files.cert, 'utf8');
  // Authorities send a chain of two or three.
  const pem = path.join(data, 'many.pem');
  writeFileSync(pem, readFileSync(files.key, 'utf8') + certificate + certificate, { mode: 0o600 });
  for (let index = 0; index < DOMAINS; index++) copyFileSync(pem, path.join(folder, `d${index}.many.test.pem`));
  const tlsPort = await freePort();
  // Nobody is asked: every certificate is there and far from its renewal.
  const acme = { 'tls-mode': 'acme', 'tls-port': String(tlsPort), 'tls-acme-directory': 'https://127.0.0.1:9/dir' };
  host = await startHost({ data, flags: { ...flags, ...acme } });
  return { host, tlsPort };
}

function handshake(port: number, servername: string): Promise<void> {
  return new Promise((resolve, reject) => {
    const socket = connect({ host: '127.0.0.1', port, servername, rejectUnauthorized: false }, () => {
      const covered = socket.getPeerCertificate().subjectaltname === 'DNS:*.many.test';
      socket.destroy();
      if (covered) resolve();
      else reject(new Error(`another certificate for ${servername}`));
    });
    socket.on('error', reject);
  });
}

async function manyDomains(): Promise<RowResult> {
  const { host, tlsPort } = await startMany();
  try {
    const edge = processTree([host.pid]).find((pid) => commandOf(pid).includes('host/edge/main')) ?? 0;
    const pass = async () => {
      const from = performance.now();
      const names = Array.from({ length: DOMAINS }, (_, index) => `d${index}.many.test`).values();
      const lanes = Array.from({ length: 8 }, async () => {
        for (const name of names) await handshake(tlsPort, name);
      });
      await Promise.all(lanes);
      return {
        'private MB': round(privateOf(edge) / 1e6),
        'ms a handshake': round((performance.now() - from) / DOMAINS),
      };
    };
    const before = privateOf(edge);
    const first = await pass();
    const after = privateOf(edge);
    const second = await pass();
    const grown = (after - before) / DOMAINS / 1000;
    return {
      id: 'tls-domains',
      title: `Certificates of ${DOMAINS} domains, loaded when they are first asked for`,
      figures: [
        { subject: 'edge after its start', cells: { 'private MB': round(before / 1e6) } },
        { subject: 'each name asked for once', cells: first },
        { subject: 'each once more', cells: second },
      ],
      targets: [judge('kB a loaded certificate', '≤ 100', [grown])],
      skipped: [],
    };
  } finally {
    await host.stop();
    rmSync(host.data, { recursive: true, force: true });
  }
}

const TEN_MB_IN_MB = 10.48576;

export function tlsRows(): { id: string; run(): Promise<RowResult> }[] {
  const rows = [
    {
      row: { id: 'tls-handshakes', title: 'Full TLS handshakes, one request each', column: 'handshakes/s' },
      code: HELLO,
      warmUp: ['-n', '600', '-c', '600', '-m', '1'],
      args: ['-n', '600', '-c', '600', '-m', '1'],
    },
    {
      row: { id: 'h2-hello', title: 'Hello by HTTP/2 (8 connections, 16 streams each)', column: 'req/s' },
      code: HELLO,
      warmUp: ['-n', '50', '-c', '2'],
      args: ['-n', '12000', '-c', '8', '-m', '16'],
    },
    {
      row: { id: 'h2-download', title: '10 MB down by HTTP/2 (4 connections)', column: 'MB/s', factor: TEN_MB_IN_MB },
      code: TEN_MB,
      warmUp: ['-n', '50', '-c', '2'],
      args: ['-n', '40', '-c', '4', '-m', '1', '-w', '20', '-W', '24'],
    },
  ];
  return [
    ...rows.map(({ row, code, warmUp, args }) => ({ id: row.id, run: () => compared(row, code, warmUp, args) })),
    { id: 'tls-domains', run: manyDomains },
  ];
}
