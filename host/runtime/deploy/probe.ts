/**
 * Loads a version once before it may go live, in a throwaway sandbox or where it is to run: catches what workerd would
 * refuse or, worse, would start with happily (no default export, a default without handlers), and tells which handlers
 * there are.
 */
import { mkdtempSync, rmSync } from 'node:fs';
import path from 'node:path';
import { z } from 'zod';
import { exportedClasses } from '../../bindings/durable-objects/classes.ts';
import { NO_BINDINGS } from '../../bindings/index.ts';
import { ownEntrypoints } from '../../bindings/services/access.ts';
import { ENTRYPOINT } from '../../bindings/services/names.ts';
import type { Sandbox } from '../../sandbox/confinement.ts';
import { limitStart } from '../../sandbox/start-limit.ts';
import type { BindingSet, CodeBundle, CodeModule, InstanceSpec } from '../../shared/contracts.ts';
import { type FieldError, Problem } from '../../shared/problem.ts';
import { InstanceProcess, type InstanceProcessOptions } from '../instance-process.ts';
import { nodeHint } from '../node-flags.ts';
import { sandboxFolders, startPrewarmedSandbox } from '../prewarmed-sandbox.ts';
import { getText } from '../system-calls.ts';
import { HANDLERS, PROBE_SOCKET, probeModules } from './probe-worker.ts';

export interface ProbeOptions {
  sandbox: Sandbox;
  /** Probes make short-lived folders in it. */
  runFolder: string;
  heapMb: number;
  memoryBytes: number;
  startTimeoutMs: number;
  /** CPU time that loading may take, ms. */
  loadCpuMs?: number;
}

export interface ProbeSubject {
  bundle: CodeBundle;
  compatibilityDate: string;
  compatibilityFlags: string[];
  /** Top-level code may read them through `import { env } from 'cloudflare:workers'`. */
  secrets?: Record<string, string>;
  vars?: InstanceSpec['vars'];
  bindings?: InstanceSpec['bindings'];
  /** It gets less CPU than others on a busy machine. */
  yielding?: boolean;
}

export type Handler = (typeof HANDLERS)[number];

export interface Found {
  handlers: Handler[];
  /** Beside the default export. */
  entrypoints: string[];
}

/** A socket each. */
const MOST_ENTRYPOINTS = 32;

/** As much as Cloudflare allows: https://developers.cloudflare.com/workers/platform/limits/#worker-startup-time */
const LOAD_CPU_MS = 1_000;
const WATCH_MS = 50;
/** From listening to the probe's answer, without what it waits for a core. */
const ANSWER_MS = 5_000;

/** What the probe says; it comes out of a process with hostile code in it. */
const report = z.object({
  handlers: z.array(z.enum(HANDLERS)).max(HANDLERS.length),
  kind: z.string().max(20),
  missing: z.array(z.string().max(64)).max(64),
  entrypoints: z.array(z.string()),
});

/** What a probe gives to whoever starts the instance. */
export type ProbedStart = Required<Pick<InstanceProcessOptions, 'front' | 'onSpawned'>>;

/** Where a version is loaded, once. */
export interface ProbePlace {
  /** @throws Problem */
  start(subject: ProbeSubject, probed: ProbedStart): Promise<InstanceProcess>;
  /**
   * Nobody asks it any more.
   * @param accepted whether the code may run @param unwatch ends what watches the limits of an instance that goes on
   */
  end(accepted: boolean, unwatch: () => void): void;
}

export class Prober {
  readonly #options: ProbeOptions;

  constructor(options: ProbeOptions) {
    this.#options = options;
  }

  /** Starts a throwaway sandbox, while the code for it is still being made. Each is for one call of `probe`, or is ended. */
  prepare(): ProbePlace {
    const { sandbox, runFolder, heapMb, startTimeoutMs } = this.#options;
    const folder = mkdtempSync(path.join(runFolder, '.probe-'));
    // Nothing to talk to: loading a module must not need anything.
    const started = startPrewarmedSandbox({ sandbox, ...sandboxFolders(folder), judging: true });
    // Whoever probes with it is told.
    started.catch(() => undefined);
    const discard = async () => {
      const prewarmed = await started.catch(() => undefined);
      prewarmed?.process.kill();
      await prewarmed?.process.ended;
      rmSync(folder, { recursive: true, force: true });
    };
    return {
      start: async (subject, probed) =>
        await InstanceProcess.start({
          ...probed,
          spec: probeSpec(subject),
          generation: 0,
          prewarmed: await started,
          heapMb,
          startTimeoutMs,
          onLog: () => undefined,
          onDiagnostic: () => undefined,
        }),
      // The answer does not wait for its end.
      end: () => void discard(),
    };
  }

  /**
   * @param refuse throws where what is found is not enough
   * @returns the handlers of the default export, one at least. Without `fetch`, requests are answered 500, as on
   * Cloudflare. And the other entrypoints
   * @throws Problem code_rejected
   */
  async probe(subject: ProbeSubject, place = this.prepare(), refuse?: (found: Found) => void): Promise<Found> {
    const { modules } = subject.bundle;
    const bindings = subject.bindings ?? NO_BINDINGS;
    let unwatch = () => {};
    let accepted = false;
    try {
      const instance = await place.start(subject, {
        front: probeModules(modules[0]?.name ?? '', exportedClasses(bindings)),
        onSpawned: (spawned) => {
          unwatch = this.#watch(spawned, subject);
        },
      });
      const { probeSocket, ended } = instance;
      const late = new AbortController();
      const answered = limitStart(
        () => instance.pid,
        ANSWER_MS,
        () => late.abort(),
      );
      const text = await getText(probeSocket, late.signal)
        .catch(() => undefined)
        .finally(answered);
      // It was ended while it answered: then that says more.
      if (text === undefined && !instance.alive) throw new Problem('start_failed', (await ended).detail);
      const found = judge(text, ownEntrypoints(bindings));
      refuse?.(found);
      accepted = true;
      return found;
    } catch (error) {
      throw rejection(error, modules, subject.compatibilityFlags);
    } finally {
      place.end(accepted, unwatch);
    }
  }

  /** Ends one that computes or allocates too much, until it is told not to watch. */
  #watch(instance: InstanceProcess, subject: ProbeSubject): () => void {
    const { memoryBytes, loadCpuMs = LOAD_CPU_MS } = this.#options;
    let settled = !subject.yielding || instance.weigh('steady');
    const timer = setInterval(() => {
      if (!settled) settled = instance.weigh('steady');
      const { cpuMs, privateBytes } = instance.usage();
      if (cpuMs > loadCpuMs) {
        void instance.kill(
          'cpu_exceeded',
          `Loading the code took more than ${loadCpuMs / 1_000} s of CPU; look for an endless loop or a long computation outside of its functions.`,
        );
      } else if (privateBytes > memoryBytes) {
        void instance.kill(
          'memory_exceeded',
          `Loading the code took more than ${Math.round(memoryBytes / 1_048_576)} MB.`,
        );
      }
    }, WATCH_MS);
    const stop = () => clearInterval(timer);
    void instance.ended.then(stop);
    return stop;
  }
}

function probeSpec(subject: ProbeSubject): InstanceSpec {
  return {
    slug: 'probe',
    tenant: 'probe',
    revision: 'probe',
    bundle: { ...subject.bundle, entrypoints: [] },
    compatibilityDate: subject.compatibilityDate,
    compatibilityFlags: subject.compatibilityFlags,
    secrets: subject.secrets ?? {},
    vars: subject.vars ?? {},
    bindings: withoutObjects(subject.bindings ?? NO_BINDINGS),
    crons: [],
    egressAllow: [],
  };
}

/** The classes are of the module that the probe stands before, and are not asked for anything; nobody gets traces of it. */
function withoutObjects({
  durableObjects: _o,
  queues: _q,
  workflows: _w,
  services: _s,
  tails: _t,
  ...bindings
}: BindingSet): BindingSet {
  return bindings;
}

function judge(text: string | undefined, own: string[]): Found {
  const parsed = text === undefined ? undefined : report.safeParse(parseJson(text));
  if (!parsed?.success)
    throw new Problem(
      'code_rejected',
      'The code loads, but does not answer; it may not replace built-in objects while loading.',
    );
  const { handlers, kind, missing } = parsed.data;
  const entrypoints = parsed.data.entrypoints.filter((name) => ENTRYPOINT.test(name));
  if (missing.length > 0) {
    throw rejected(
      `The code exports no class ${missing.join(', ')}, which a binding names. Export it, such as: export class ${missing[0]} extends DurableObject { ... }`,
    );
  }
  if (kind === 'none') {
    throw rejected(
      'The code has no default export. Export an object with a fetch function: export default { fetch(request, env, ctx) { return new Response("hi") } }',
    );
  }
  if (handlers.length === 0) {
    const what = kind === 'object' || kind === 'class' ? 'has no fetch function' : `is of type ${kind}`;
    throw rejected(
      `The default export ${what}. Export an object with one: export default { fetch(request, env, ctx) { return new Response("hi") } }`,
    );
  }
  if (entrypoints.length > MOST_ENTRYPOINTS)
    throw rejected(`The code exports ${entrypoints.length} entrypoints; ${MOST_ENTRYPOINTS} are allowed.`);
  const lacking = own.find((name) => !entrypoints.includes(name));
  if (lacking !== undefined) {
    throw rejected(
      `The code exports no entrypoint ${lacking}, which services names. Export it, such as: export class ${lacking} extends WorkerEntrypoint { ... }`,
    );
  }
  return { handlers, entrypoints };
}

function rejected(detail: string): Problem {
  return new Problem('code_rejected', detail, { errors: [{ pointer: '/code', detail }] });
}

/** What a start says of code that does not load. */
const OF_THE_CODE: ReadonlySet<string> = new Set(['start_failed', 'memory_exceeded']);

/** workerd's own words, with the place in the owner's file where it names one. */
function rejection(error: unknown, modules: CodeModule[], compatibilityFlags: string[]): unknown {
  if (!(error instanceof Problem) || !OF_THE_CODE.has(error.code)) return error;
  const text = error.message
    .replaceAll(/^service (main|system): /gm, '')
    // It follows from what is said before.
    .replace(new RegExp(`\\n?^Socket "${PROBE_SOCKET}" refers to .*$`, 'm'), '')
    .replace(
      /^Uncaught TypeError: Incorrect type for map entry '(.*)': .*$/m,
      'The code exports $1, which is no handler, class or function: workerd takes nothing else from the entry module. Do not export it there, or move it to another module.',
    )
    .replace(/^Uncaught /, 'The code failed while it was loaded: ')
    .replace(/No such module "(node:[^"]*)"\./, (said, name: string) => `${said} ${nodeHint(name, compatibilityFlags)}`)
    .replace(
      / and may break or be removed in a future version of workerd\. To use this flag, you must pass --experimental on the command line\./,
      ' in workerd and is not available here.',
    );
  const place = /(?:^|[\s(])([^\s():]+):(\d+):(\d+)\)?$/m.exec(text);
  const [, file, line, column] = place ?? [];
  const known = file !== undefined && !modules.some(({ name }) => name === file);
  const flag = /compatibility (flag|date)/i.exec(text)?.[1];
  const entry: FieldError = {
    pointer: flag === 'date' ? '/compatibilityDate' : flag ? '/compatibilityFlags' : '/code',
    detail: text.split('\n')[0] ?? text,
    ...(known ? { file, line: Number(line), column: Number(column) } : {}),
  };
  return new Problem('code_rejected', text, { errors: [entry], cause: error });
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
