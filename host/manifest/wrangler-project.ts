/** A project's settings, as wrangler's file has them, in the terms of this host. */
import { STORE_ID } from '../bindings/stores.ts';
import { featureShapes, type Settings } from './wrangler-shapes.ts';
import { isNothing } from './wrangler-text.ts';

type Present<T> = { [Name in keyof T]?: Exclude<T[Name], undefined> };
type StoreBindings = Record<string, { id?: string }>;

export interface WranglerAssets {
  /** Relative to the file. */
  directory?: string;
  /** Name in env. */
  binding?: string;
  htmlHandling?: 'auto-trailing-slash' | 'force-trailing-slash' | 'drop-trailing-slash' | 'none';
  notFoundHandling?: 'single-page-application' | '404-page' | 'none';
  basePath?: string;
  runWorkerFirst?: boolean | string[];
}

/** How the code is bundled. Paths are relative to the file. */
export interface WranglerBuild {
  noBundle: boolean;
  /** Which files are which kind of module, first match first. */
  rules: { type: 'ESModule' | 'CommonJS' | 'CompiledWasm' | 'Text' | 'Data'; globs: string[]; fallthrough?: boolean }[];
  /** Module -> the one that is taken instead. */
  alias: Record<string, string>;
  /** Name in the code -> expression. */
  define: Record<string, string>;
  findAdditionalModules?: boolean;
  preserveFileNames?: boolean;
  baseDir?: string;
  tsconfig?: string;
  minify?: boolean;
  keepNames?: boolean;
  jsxFactory?: string;
  jsxFragment?: string;
  /** Shell command of the project that makes the entry; nobody has run it. */
  command?: string;
  /** Folder for the command. */
  cwd?: string;
}

/** For commands on the data of a D1 binding. */
export interface WranglerDatabase {
  databaseName?: string;
  migrationsDir?: string;
  migrationsTable?: string;
  /** Of the files with migrations, instead of all in the folder. */
  migrationsPattern?: string;
}

/** Members of {@link WranglerProject.features}, in wrangler's own form. */
export type WranglerFeatures = Present<Pick<Settings, keyof typeof featureShapes>>;

export interface WranglerProject {
  /** What a turnpike.json of this project would say. */
  manifest: {
    slug?: string;
    /** Relative to the file. */
    entry?: string;
    bindings?: {
      kv?: StoreBindings;
      d1?: StoreBindings;
      r2?: StoreBindings;
      ratelimit?: Record<string, { limit: number; period: number; namespace: string }>;
      version?: Record<string, object>;
      services?: Record<string, { service?: string; entrypoint?: string; props?: Record<string, unknown> }>;
      queues?: Record<string, { queue: string; producer?: boolean; consumer?: object }>;
      workflows?: Record<string, { class: string; name: string }>;
      analytics?: Record<string, { dataset?: string }>;
      tails?: Record<string, { service: string }>;
      ai?: Record<string, object>;
      hyperdrive?: Record<string, object>;
      durableObjects?: Record<string, { class?: string; id?: string; sql?: boolean; deleted?: boolean }>;
    };
    vars?: Record<string, unknown>;
    crons?: string[];
    compatibilityDate?: string;
    compatibilityFlags?: string[];
  };
  build: WranglerBuild;
  /** By the binding's name in env. */
  d1: Record<string, WranglerDatabase>;
  assets?: WranglerAssets;
  /** What it asks of hosts that have more than bindings; what this host does not offer is in `refused` as well. */
  features: WranglerFeatures;
  /** Secrets that have to be set. */
  secretNames: string[];
  /** What the project needs and the host does not have; each stops a deploy before it is paid. */
  refused: { key: string; file: string; line?: number; reason: string }[];
  /** What was set, and does not matter here. */
  ignored: { key: string; reason: string }[];
}

/** What templates have where an id belongs: nothing, zeros, or words that tell to fill it in. */
const PLACEHOLDER =
  /^[0x-]*$|^your[-_]|[-_]here$|(?:^|[-_])(?:replace|change|insert|fill)[-_](?:me|with|your|this|in)(?:[-_]|$)|placeholder|^todo$/i;

/** The first that can be the id of a store; without one, a store is called like its binding. */
function storeId(...ids: (string | undefined)[]): { id?: string } {
  const id = ids.find((one) => one !== undefined && STORE_ID.test(one) && !PLACEHOLDER.test(one));
  return id === undefined ? {} : { id };
}

/**
 * Durable Objects with the ids of their classes. A class keeps the id of the first name that it had; one that comes after
 * another of that name was deleted has an id of its own.
 */
function durableObjects({ durable_objects: objects, migrations = [] }: Settings): StoreBindings {
  const ids = new Map<string, string>();
  const plain = new Set<string>();
  const deleted: string[] = [];
  const used = new Map<string, number>();
  const create = (name: string): string => {
    const count = (used.get(name) ?? 0) + 1;
    used.set(name, count);
    const id = count === 1 ? name : `${name}.${count}`;
    ids.set(name, id);
    return id;
  };
  for (const step of migrations) {
    for (const { from, to } of step.renamed_classes ?? []) {
      const id = ids.get(from) ?? create(from);
      ids.delete(from);
      ids.set(to, id);
    }
    for (const name of step.deleted_classes ?? []) {
      deleted.push(ids.get(name) ?? create(name));
      ids.delete(name);
    }
    for (const name of step.new_sqlite_classes ?? []) create(name);
    for (const name of step.new_classes ?? []) plain.add(create(name));
  }
  const bound = (objects?.bindings ?? []).map(({ name, class_name }) => {
    const id = ids.get(class_name) ?? create(class_name);
    return [name, { class: class_name, ...(id === class_name ? {} : { id }), ...(plain.has(id) && { sql: false }) }];
  });
  const gone = deleted.map((id, index) => [`deleted${index + 1}`, { id, deleted: true }]);
  return Object.fromEntries([...bound, ...gone]);
}

/** Queues by their producers; the consumer of one is with the first of them, or by itself. */
function queues({ queues: asked }: Settings): Record<string, object> {
  const consumers = new Map(
    (asked?.consumers ?? []).map((one) => [
      one.queue,
      present({
        maxBatchSize: one.max_batch_size,
        maxBatchTimeout: one.max_batch_timeout,
        maxRetries: one.max_retries,
        retryDelay: one.retry_delay,
        deadLetterQueue: one.dead_letter_queue,
        maxConcurrency: one.max_concurrency ?? undefined,
      }),
    ]),
  );
  const take = (queue: string) => {
    const consumer = consumers.get(queue);
    consumers.delete(queue);
    return { queue, ...(consumer && { consumer }) };
  };
  const bound = (asked?.producers ?? []).map(({ binding, queue = binding }) => [binding, take(queue)]);
  const alone = [...consumers.keys()].map((queue) => [
    `consumer_${queue.replaceAll('-', '_')}`,
    { ...take(queue), producer: false },
  ]);
  return Object.fromEntries([...bound, ...alone]);
}

/** Service bindings; one that names the Worker itself is to its own entrypoints. */
function services({ name, services: asked = [] }: Settings): Record<string, object> {
  return Object.fromEntries(
    asked.map(({ binding, service, entrypoint, props }) => [
      binding,
      present({ service: service === name ? undefined : service.replaceAll('_', '-'), entrypoint, props }),
    ]),
  );
}

export function project(settings: Settings, slug: string | undefined): Omit<WranglerProject, 'refused' | 'ignored'> {
  const { kv_namespaces: kv = [], d1_databases: d1 = [], r2_buckets: r2 = [], assets } = settings;
  const stores = {
    kv: Object.fromEntries(kv.map(({ binding, id }) => [binding, storeId(id)])),
    d1: Object.fromEntries(d1.map((one) => [one.binding, storeId(one.database_id, one.database_name)])),
    r2: Object.fromEntries(r2.map(({ binding, bucket_name }) => [binding, storeId(bucket_name)])),
  };
  const { ratelimits = [], version_metadata: version } = settings;
  const others = {
    ratelimit: Object.fromEntries(
      ratelimits.map(({ name, namespace_id: namespace, simple }) => [
        name,
        { ...simple, namespace: String(namespace) },
      ]),
    ),
    version: version ? { [version.binding]: {} } : {},
    durableObjects: durableObjects(settings),
    queues: queues(settings),
    services: services(settings),
    hyperdrive: Object.fromEntries((settings.hyperdrive ?? []).map(({ binding }) => [binding, {}])),
    workflows: Object.fromEntries(
      (settings.workflows ?? []).map(({ binding, name, class_name }) => [binding, { class: class_name, name }]),
    ),
    analytics: Object.fromEntries(
      (settings.analytics_engine_datasets ?? []).map(({ binding, dataset }) => [binding, present({ dataset })]),
    ),
    tails: Object.fromEntries(
      (settings.tail_consumers ?? []).map(({ service }) => [
        `tail_${service.replaceAll('-', '_')}`,
        { service: service.replaceAll('_', '-') },
      ]),
    ),
    ai: settings.ai ? { [settings.ai.binding]: {} } : {},
  };
  const bindings = Object.fromEntries(
    Object.entries({ ...stores, ...others }).filter(([, all]) => Object.keys(all).length > 0),
  );
  return {
    manifest: present({
      slug,
      entry: settings.main,
      bindings: Object.keys(bindings).length > 0 ? bindings : undefined,
      vars: settings.vars,
      crons: settings.triggers?.crons ?? undefined,
      compatibilityDate: settings.compatibility_date,
      compatibilityFlags: settings.compatibility_flags,
    }),
    build: {
      noBundle: settings.no_bundle ?? false,
      rules: (settings.rules ?? []).map(({ type, globs, fallthrough }) => ({
        type,
        globs,
        ...present({ fallthrough }),
      })),
      alias: settings.alias ?? {},
      define: settings.define ?? {},
      ...present({
        findAdditionalModules: settings.find_additional_modules,
        preserveFileNames: settings.preserve_file_names,
        baseDir: settings.base_dir,
        tsconfig: settings.tsconfig,
        minify: settings.minify,
        keepNames: settings.keep_names,
        jsxFactory: settings.jsx_factory,
        jsxFragment: settings.jsx_fragment,
        command: settings.build?.command,
        cwd: settings.build?.cwd,
      }),
    },
    d1: Object.fromEntries(
      d1.map((one) => [
        one.binding,
        present({
          databaseName: one.database_name,
          migrationsDir: one.migrations_dir,
          migrationsTable: one.migrations_table,
          migrationsPattern: one.migrations_pattern,
        }),
      ]),
    ),
    ...(assets && {
      assets: present({
        directory: assets.directory,
        binding: assets.binding,
        htmlHandling: assets.html_handling,
        notFoundHandling: assets.not_found_handling,
        basePath: assets.base_path,
        runWorkerFirst: assets.run_worker_first,
      }),
    }),
    features: Object.fromEntries(
      Object.keys(featureShapes).flatMap((key) => {
        const value = settings[key as keyof typeof featureShapes];
        return isNothing(value) ? [] : [[key, value]];
      }),
    ),
    secretNames: settings.secrets?.required ?? [],
  };
}

/** Without members that are undefined. */
function present<T extends object>(members: T): Present<T> {
  return Object.fromEntries(Object.entries(members).filter(([, value]) => value !== undefined)) as Present<T>;
}
