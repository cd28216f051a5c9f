/**
 * The runtime with the real edge, storage and egress processes, and without control: deployments are put in by the test.
 */
import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, readlinkSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { pino } from 'pino';
import defaults from '../../config/turnpike.default.json' with { type: 'json' };
import { openBindingServers, storeQuotas } from '../../host/bindings/index.ts';
import type { ObjectsCluster } from '../../host/runtime/cluster-member.ts';
import { CodeStore } from '../../host/runtime/code-store.ts';
import type { Runtime, RuntimeDependencies, RuntimeEvent } from '../../host/runtime/contract.ts';
import { Bundler } from '../../host/runtime/deploy/bundle.ts';
import type { CodeInput } from '../../host/runtime/deploy/code-input.ts';
import type { LogEntry } from '../../host/runtime/logs/log-entry.ts';
import { LogStore } from '../../host/runtime/logs/log-store.ts';
import { createRuntime } from '../../host/runtime/runtime.ts';
import type { SandboxLevel } from '../../host/sandbox/confinement.ts';
import { detectSandbox } from '../../host/sandbox/index.ts';
import { Channel, type Methods } from '../../host/shared/channel.ts';
import { AdjustableClock } from '../../host/shared/clock.ts';
import { type Config, configSchema } from '../../host/shared/config.ts';
import type {
  EdgeMethods,
  EdgeTraffic,
  EgressMethods,
  InstanceSpec,
  StorageMethods,
} from '../../host/shared/contracts.ts';
import { Problem } from '../../host/shared/problem.ts';
import { bindSocket, type ListeningSocket } from '../../host/supervisor/listening-socket.ts';
import { type ProcessName, takeProcess } from '../../host/supervisor/prefork.ts';
import { until } from './support/until.ts';

export interface RigOptions {
  runtime?: Partial<Config['runtime']>;
  storage?: Partial<Config['storage']>;
  sandbox?: 'auto' | SandboxLevel;
  cluster?: ObjectsCluster;
}

export interface Deployment {
  bindings?: Partial<InstanceSpec['bindings']>;
  secrets?: Record<string, string>;
  compatibilityFlags?: string[];
  tenant?: string;
  limits?: InstanceSpec['limits'];
  /** Another for each version. */
  revision?: string;
}

const NONE = { kv: false, d1: false, r2: false, payments: false };

export class RuntimeRig {
  readonly folder = mkdtempSync(join(tmpdir(), 'rt-'));
  readonly tenants = join(this.folder, 'tenants');
  readonly config: Config;
  readonly clock = new AdjustableClock();
  readonly logs: LogStore;
  readonly events: RuntimeEvent[] = [];
  readonly specs = new Map<string, InstanceSpec>();
  readonly codeStore = new CodeStore(join(this.folder, 'code'));
  runtime!: Runtime;
  port = 0;
  readonly #options: RigOptions;
  readonly #children: ChildProcess[] = [];
  readonly #bundler = new Bundler({ maxBytes: 20_000_000 });
  #edge!: Channel<EdgeMethods>;
  #listening!: ListeningSocket;
  #revision = 0;

  private constructor(options: RigOptions) {
    this.#options = options;
    this.config = configSchema.parse(defaults);
    Object.assign(this.config.runtime, options.runtime);
    Object.assign(this.config.storage, options.storage);
    this.logs = new LogStore({ folder: this.tenants, clock: this.clock, maxBytes: this.config.runtime.logBytes });
  }

  static async start(options: RigOptions = {}): Promise<RuntimeRig> {
    const rig = new RuntimeRig(options);
    await rig.#start();
    return rig;
  }

  /** Puts a version in place of the present one; `activate` brings it into service where one runs. */
  async deploy(slug: string, code: string | CodeInput, deployment: Deployment = {}): Promise<void> {
    const bundle = await this.#bundler.bundle(typeof code === 'string' ? { code } : code);
    const known = this.specs.get(slug);
    this.specs.set(slug, {
      slug,
      tenant: deployment.tenant ?? known?.tenant ?? `t${String(this.specs.size).padStart(20, '0')}`,
      revision: deployment.revision ?? String(++this.#revision),
      bundle,
      compatibilityDate: '2026-10-01',
      compatibilityFlags: deployment.compatibilityFlags ?? [],
      vars: {},
      secrets: deployment.secrets ?? {},
      bindings: { ...NONE, ...deployment.bindings },
      ...(deployment.limits ? { limits: deployment.limits } : {}),
      crons: [],
      egressAllow: [],
    });
    await this.#edge.call('putRoute', {
      slug,
      state: 'active',
      domains: [],
      paidRoutes: [],
      idleTimeoutMs: this.config.runtime.requestIdleMs,
      maxBodyBytes: this.config.runtime.maxBodyBytes,
    });
  }

  /** A request of a caller, through the edge. */
  fetch(slug: string, path = '/', init?: RequestInit): Promise<Response> {
    return fetch(`http://127.0.0.1:${this.port}/${slug}${path}`, init);
  }

  async text(slug: string, path = '/', init?: RequestInit): Promise<string> {
    return (await this.fetch(slug, path, init)).text();
  }

  async log(slug: string): Promise<LogEntry[]> {
    return this.logs.read(this.tenantOf(slug), { limit: 1_000 });
  }

  /** Waits until the owner's log has a line that matches. */
  async logged(slug: string, pattern: RegExp): Promise<LogEntry> {
    let entries: LogEntry[] = [];
    return until(
      async () => {
        entries = await this.log(slug);
        return entries.find((entry) => pattern.test(JSON.stringify(entry)));
      },
      () => `${pattern} in the log of ${slug}: ${JSON.stringify(entries.slice(-3))}`,
    );
  }

  tenantOf(slug: string): string {
    const tenant = this.specs.get(slug)?.tenant;
    if (tenant === undefined) throw new Error(`${slug} is not deployed`);
    return tenant;
  }

  socketOf(slug: string): string | undefined {
    return this.runtime.instances().find((instance) => instance.slug === slug)?.socket;
  }

  /** The workerd of a slug: the process with the socket's folder among its mounts that is no helper. */
  pidOf(slug: string): number {
    const folder = dirname(this.socketOf(slug) ?? '/nothing');
    for (const name of readdirSync('/proc').filter((entry) => /^\d+$/.test(entry))) {
      try {
        if (
          readlinkSync(`/proc/${name}/exe`).endsWith('/workerd') &&
          readFileSync(`/proc/${name}/mountinfo`, 'utf8').includes(folder)
        ) {
          return Number(name);
        }
      } catch {
        // It is gone already.
      }
    }
    throw new Error(`${slug} does not run`);
  }

  /** A runtime over the same folders, as after a restart of the supervisor. */
  async startRuntime(): Promise<void> {
    this.runtime = createRuntime(await this.#dependencies());
  }

  async stop(): Promise<void> {
    await this.runtime.close();
    this.#bundler.close();
    this.#listening.close();
    await Promise.all(
      this.#children.map(async (child) => {
        const exited = once(child, 'exit');
        child.kill('SIGKILL');
        await exited;
      }),
    );
    await this.logs.close();
    rmSync(this.folder, { recursive: true, force: true });
  }

  async #start(): Promise<void> {
    mkdirSync(this.tenants, { recursive: true });
    this.#listening = bindSocket('127.0.0.1', 0);
    this.port = this.#listening.port;
    const storage = this.#fork<StorageMethods>('storage', {});
    const egress = this.#fork<EgressMethods>('egress', {
      notices: async (notices: { tenant: string; code: string; target: string; detail: string }[]) => {
        for (const { tenant, code, target, detail } of notices) {
          await this.logs.append(tenant, { kind: 'platform', event: code, text: `${target}: ${detail}` });
        }
      },
    });
    this.#edge = this.#fork<EdgeMethods>('edge', {
      acquire: ({ slug }: { slug: string }) => this.runtime.acquire(slug),
      traffic: (traffic: EdgeTraffic[]) => this.runtime.reportTraffic(traffic),
    });
    await storage.call('init', { root: this.tenants, objects: { kind: 'disk' }, clockOffsetMs: 0 });
    await egress.call('init', {
      ownHosts: [`127.0.0.1:${this.port}`, 'localhost'],
      baseDomain: '.localhost',
      edgeAddress: { host: '127.0.0.1', port: this.port },
      connectPorts: undefined,
      clockOffsetMs: 0,
    });
    await this.#edge.call('init', {
      controlSocket: join(this.folder, 'control.sock'),
      publicUrl: undefined,
      baseDomain: 'localhost',
      trustedProxies: [],
      maxHeaderBytes: 65_536,
      reservedSlugs: [],
      controlMaxBodyBytes: 1_000_000,
      tls: { mode: 'off' },
      clockOffsetMs: 0,
    } as Parameters<EdgeMethods['init']>[0]);
    this.#storage = storage;
    this.#egress = egress;
    await this.startRuntime();
    await this.#edge.call('setRoutes', []);
    await this.#edge.call('listen', { kind: 'http' }, this.#listening.handle);
  }

  #storage!: Channel<StorageMethods>;
  #egress!: Channel<EgressMethods>;

  async #dependencies(): Promise<RuntimeDependencies> {
    const sandbox = await detectSandbox(this.#options.sandbox ?? 'auto');
    const log = pino({ level: process.env.RIG_LOG ?? 'silent' });
    const runFolder = join(this.folder, 'run');
    return {
      config: this.config.runtime,
      storeQuotas: storeQuotas(this.config),
      ...(this.#options.cluster ? { cluster: this.#options.cluster } : {}),
      tenantsFolder: this.tenants,
      runFolder,
      logs: this.logs,
      sandbox,
      clock: this.clock,
      log,
      resolve: async (slug) => {
        const spec = this.specs.get(slug);
        if (!spec) throw new Problem('not_found', `${slug} is not deployed`);
        return spec;
      },
      servers: await openBindingServers({
        config: this.config,
        isClustered: this.#options.cluster !== undefined,
        tenantsFolder: this.tenants,
        runFolder,
        sandbox,
        log,
        tell: () => undefined,
        // Databases of previews on several nodes are asked for by it; no deployment here calls another.
        services: {
          visit: (slug) => this.runtime.visit(slug),
          check: () => Promise.reject(new Problem('not_found', 'There is no such deployment.')),
          count: () => undefined,
          refused: () => undefined,
        },
      }),
      storage: {
        open: (tenant) => this.#storage.call('open', tenant),
        close: (tenant) => this.#storage.call('close', tenant),
      },
      egress: {
        open: (tenant) => this.#egress.call('open', tenant),
        close: (tenant) => this.#egress.call('close', tenant),
      },
      edges: {
        setInstance: (instance) => this.#edge.call('setInstance', instance),
        retire: (instance) => this.#edge.call('retire', instance),
        failed: (instance) => this.#edge.call('failed', instance),
      },
      onEvent: (event) => this.events.push(event),
    };
  }

  #fork<M extends Methods>(part: ProcessName, local: Methods): Channel<M> {
    const child = takeProcess(part);
    this.#children.push(child);
    return new Channel<M>(child, local);
  }
}

/** Whether a process is there and not just waiting to be collected. */
export function running(pid: number | undefined): boolean {
  return pid !== undefined && existsSync(`/proc/${pid}/exe`) && process.kill(pid, 0);
}
