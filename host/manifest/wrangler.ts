/**
 * wrangler's configuration of a project (wrangler.jsonc, wrangler.json, wrangler.toml) as a manifest of this host. What
 * the host lacks is named, so that a deploy can stop before it is paid; what does not matter here is named too. The keys
 * are in wrangler-keys.ts, their types in wrangler-shapes.ts; what a named environment inherits and how it is called is as
 * in wrangler 4.164.0.
 */
import { closest, distance } from 'fastest-levenshtein';
import { STORE_ID } from '../bindings/stores.ts';
import { SLUG } from '../shared/slug.ts';
import { type Key, WRANGLER_KEYS, type WranglerKey } from './wrangler-keys.ts';
import { featureShapes, type Settings, shapes } from './wrangler-shapes.ts';
import {
  at,
  type Document,
  isTree,
  MOST_NAMED,
  type Place,
  placeName,
  readDocument,
  type Tree,
  WranglerFault,
} from './wrangler-text.ts';

export { WranglerFault } from './wrangler-text.ts';

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

export interface WranglerOptions {
  /** Name of the section in `env`; without one, the top level counts. */
  environment?: string;
  /** Top-level keys that this host supports although they are refused by default, such as `queues`. */
  offered?: ReadonlySet<string>;
}

/**
 * @param text of the file, at most 1 MiB
 * @param file its name, for messages; its ending says whether it is TOML
 * @throws WranglerFault that names everything that has a wrong form
 */
export function readWrangler(text: string, file: string, options: WranglerOptions): WranglerProject {
  const document = readDocument(text, file);
  const notes = new Notes(file, document);
  const sections = new Sections(document.root, options.environment, notes);
  const values: Record<string, unknown> = {};
  for (const [name, key] of WRANGLER_KEYS) {
    const place = sections.find(name, key);
    if (!place) continue;
    const value = valueAt(document.root, place);
    if (key.use !== 'refused' || !isNothing(value)) values[name] = value;
    judge(value, place, key, notes, options.offered);
  }
  const settings = check(values, sections, notes);
  checkNames(settings, sections, notes);
  const slug = slugOf(settings.name, sections, notes);
  if (settings.main?.endsWith('.py')) {
    notes.refuse(sections.place('main'), 'This host runs JavaScript and TypeScript only. Name a file in one of them.');
  }
  refuseOthers(settings, sections, notes);
  notes.throwFaults();
  return { ...project(settings, slug), ...notes.result() };
}

/** What is said of a file. */
class Notes {
  readonly #file: string;
  readonly #document: Document;
  readonly #refused: WranglerProject['refused'] = [];
  readonly #ignored = new Map<string, string>();
  readonly #faults: string[] = [];

  constructor(file: string, document: Document) {
    this.#file = file;
    this.#document = document;
  }

  refuse(place: Place, reason: string): void {
    const line = this.#document.line(place);
    this.#refused.push({ key: placeName(place), file: this.#file, ...(line === undefined ? {} : { line }), reason });
  }

  /** What is ignored in each element of a list is said once. */
  ignore(place: Place, reason: string): void {
    this.#ignored.set(placeName(place).replaceAll(/\[\d+\]/g, '[]'), reason);
  }

  ignoreUnknown(place: Place, known: Iterable<string>): void {
    const name = String(place.at(-1));
    const near = name.length <= 40 ? closest(name, [...known]) : '';
    const hint = distance(name, near) <= Math.min(2, name.length / 2) ? `; did you mean ${near}?` : '';
    this.ignore(place, `it is not a key of wrangler's configuration${hint}`);
  }

  /** To find a line takes a while: those that are only counted have none. */
  fault(place: Place, what: string): void {
    const named = this.#faults.length < MOST_NAMED;
    this.#faults.push(named ? at(this.#file, this.#document.line(place), `${placeName(place)}: ${what}`) : '');
  }

  throwFaults(): void {
    if (this.#faults.length > 0) throw new WranglerFault(this.#faults);
  }

  result(): Pick<WranglerProject, 'refused' | 'ignored'> {
    return { refused: this.#refused, ignored: [...this.#ignored].map(([key, reason]) => ({ key, reason })) };
  }
}

/** The top level and the named environment, and which of them counts for a key. */
class Sections {
  readonly environment: string | undefined;
  readonly #top: Tree;
  readonly #own: Tree | undefined;

  constructor(top: Tree, environment: string | undefined, notes: Notes) {
    this.#top = top;
    // Like wrangler, which takes `--env ""` for the top level.
    this.environment = environment || undefined;
    this.#own = this.environment === undefined ? undefined : this.#named(this.environment, notes);
    this.#noteUnknown(top, [], notes);
    if (this.#own) this.#noteUnknown(this.#own, this.#prefix(), notes);
  }

  #prefix(): Place {
    return this.environment === undefined ? [] : ['env', this.environment];
  }

  #named(name: string, notes: Notes): Tree {
    const all = isTree(this.#top.env) ? this.#top.env : {};
    const own = Object.hasOwn(all, name) ? all[name] : undefined;
    if (isTree(own)) return own;
    const names = Object.keys(all).join(', ');
    if (own !== undefined) notes.fault(['env', name], 'expected an object');
    else notes.fault(['env'], `has no environment ${name}; ${names ? `there are: ${names}` : 'there are none'}`);
    notes.throwFaults();
    return {};
  }

  #noteUnknown(section: Tree, prefix: Place, notes: Notes): void {
    for (const name of Object.keys(section)) {
      const key = WRANGLER_KEYS.get(name);
      if (!key) notes.ignoreUnknown([...prefix, name], WRANGLER_KEYS.keys());
      else if (key.scope === 'top' && prefix.length > 0) {
        notes.ignore([...prefix, name], 'wrangler reads it at the top level only');
      } else if (key.scope === 'own' && prefix.length === 0 && this.#own && !isNothing(section[name])) {
        if (this.#own[name] !== undefined) continue;
        notes.ignore([name], `environments do not inherit it, and ${placeName(this.#prefix())} has none of its own`);
      }
    }
  }

  /** Where the value is that counts; nothing where there is none, or it asks for nothing. */
  find(name: string, { scope, harmless }: WranglerKey): Place | undefined {
    const own = scope === 'top' ? undefined : this.#own?.[name];
    const inherited = scope === 'own' && this.#own ? undefined : this.#top[name];
    const value = own ?? inherited;
    if (value === undefined || value === null || (harmless !== undefined && value === harmless)) return undefined;
    return own === undefined || own === null ? [name] : [...this.#prefix(), name];
  }

  place(name: string): Place {
    const key = WRANGLER_KEYS.get(name);
    return (key && this.find(name, key)) ?? [name];
  }
}

function valueAt(root: Tree, place: Place): unknown {
  return place.reduce<unknown>((value, step) => (value as Record<string | number, unknown>)[step], root);
}

/** An empty list or object, and false: build tools write them for all that a project does not use. */
function isNothing(value: unknown): boolean {
  if (isTree(value)) return Object.values(value).every(isNothing);
  return (
    value === undefined ||
    value === null ||
    value === false ||
    value === '' ||
    (Array.isArray(value) && value.length === 0)
  );
}

/** Elements that are named one by one. */
const MOST_ELEMENTS = 32;

function judge(value: unknown, place: Place, key: Key, notes: Notes, offered?: ReadonlySet<string>): void {
  if (isNothing(value)) return;
  const { use, reason = '', parts, each, members } = key;
  if (use === 'ignored') notes.ignore(place, reason);
  if (use === 'refused' && !offered?.has(String(place.at(-1)))) {
    for (const part of partsOf(value, place, parts, each)) notes.refuse(part, reason);
  }
  if (!members) return;
  const objects = Array.isArray(value)
    ? value.map((one, index) => [one, [...place, index]] as const)
    : [[value, place] as const];
  for (const [object, around] of objects) {
    if (!isTree(object)) continue;
    for (const [name, inner] of Object.entries(object)) {
      const member = Object.hasOwn(members, name) ? members[name] : undefined;
      if (member) judge(inner, [...around, name], member, notes);
      else notes.ignoreUnknown([...around, name], Object.keys(members));
    }
  }
}

/** Where it is refused: `queues.producers`, `durable_objects.bindings[0]`, or the key itself. */
function partsOf(value: unknown, place: Place, parts: readonly string[] = [], each = false): Place[] {
  const found = parts
    .filter((part) => isTree(value) && !isNothing(value[part]))
    .flatMap((part): Place[] => {
      const inner = (value as Tree)[part];
      if (!each || !Array.isArray(inner)) return [[...place, part]];
      return inner.slice(0, MOST_ELEMENTS).map((_, index) => [...place, part, index]);
    });
  return found.length > 0 ? found : [place];
}

/** The values with their types; what has another one is a fault. */
function check(values: Record<string, unknown>, sections: Sections, notes: Notes): Settings {
  const parsed = shapes.safeParse(values);
  if (parsed.success) return parsed.data;
  for (const issue of parsed.error.issues) {
    const [name, ...rest] = issue.path as (string | number)[];
    const what = issue.code === 'invalid_key' ? issue.issues[0]?.message : issue.message;
    notes.fault(
      [...sections.place(String(name)), ...rest],
      (what ?? issue.message).replace(/^Invalid (input|option): /, ''),
    );
  }
  return {};
}

const NAMED_BY_BINDING = [
  'kv_namespaces',
  'd1_databases',
  'r2_buckets',
  'workflows',
  'services',
  'hyperdrive',
  'analytics_engine_datasets',
] as const;

/** Each name in env means one thing. */
function checkNames(settings: Settings, sections: Sections, notes: Notes): void {
  const taken = new Map<string, string>();
  const take = (name: string, ...place: Place) => {
    const here = [...sections.place(String(place[0])), ...place.slice(1)];
    const other = taken.get(name);
    if (other) notes.fault(here, `${name} is the name of ${other} already; rename one of the two`);
    else taken.set(name, placeName(here));
  };
  for (const key of NAMED_BY_BINDING) {
    for (const [index, { binding }] of (settings[key] ?? []).entries()) take(binding, key, index, 'binding');
  }
  const { assets, ai, version_metadata: version, durable_objects: objects, queues, ratelimits = [] } = settings;
  if (assets?.binding) take(assets.binding, 'assets', 'binding');
  if (ai) take(ai.binding, 'ai', 'binding');
  if (version) take(version.binding, 'version_metadata', 'binding');
  for (const [index, { binding }] of (queues?.producers ?? []).entries()) take(binding, 'queues', 'producers', index);
  for (const [index, { name }] of (objects?.bindings ?? []).entries()) take(name, 'durable_objects', 'bindings', index);
  for (const [index, { name }] of ratelimits.entries()) take(name, 'ratelimits', index);
  for (const name of Object.keys(settings.vars ?? {})) take(name, 'vars', name);
  for (const [index, name] of (settings.secrets?.required ?? []).entries()) take(name, 'secrets', 'required', index);
}

/** What another Worker has is not to be had here, and nothing is delivered to it. */
function refuseOthers(settings: Settings, sections: Sections, notes: Notes): void {
  const { durable_objects: objects, workflows = [], queues } = settings;
  const scripts = [
    ...(objects?.bindings ?? []).map((one, index) => [one, ['durable_objects', 'bindings', index]] as const),
    ...workflows.map((one, index) => [one, ['workflows', index]] as const),
  ];
  for (const [{ script_name }, [key, ...rest]] of scripts) {
    if (script_name === undefined || script_name === settings.name) continue;
    notes.refuse(
      [...sections.place(String(key)), ...rest, 'script_name'],
      'It binds a class of another Worker. Export the class here, and remove this member.',
    );
  }
  for (const [index, { service, props }] of (settings.services ?? []).entries()) {
    if (!props || service === settings.name) continue;
    notes.refuse(
      [...sections.place('services'), index, 'props'],
      'Another Worker gets no props here: it could not tell who says them. Remove it, and pass them as arguments.',
    );
  }
  const { producers = [], consumers = [] } = queues ?? {};
  const consumed = new Set(consumers.flatMap(({ queue, dead_letter_queue = queue }) => [queue, dead_letter_queue]));
  for (const [index, { binding, queue = binding }] of producers.entries()) {
    if (consumed.has(queue)) continue;
    notes.refuse(
      [...sections.place('queues'), 'producers', index],
      `Nothing here consumes ${queue}, and this host delivers messages to the Worker that sends them. Remove it, or add a consumer.`,
    );
  }
  for (const [index, { type = 'worker' }] of consumers.entries()) {
    if (type === 'worker') continue;
    notes.refuse(
      [...sections.place('queues'), 'consumers', index, 'type'],
      'This host has no consumers that pull. Remove it, and export a queue function.',
    );
  }
}

/** wrangler calls an environment that has no name of its own `<name>-<environment>`, and takes `_` where slugs do not. */
function slugOf(name: string | undefined, sections: Sections, notes: Notes): string | undefined {
  if (!name) return undefined;
  const place = sections.place('name');
  const { environment } = sections;
  const whole = environment !== undefined && place.length === 1 ? `${name}-${environment}` : name;
  const slug = whole.replaceAll('_', '-');
  if (SLUG.test(slug)) return slug;
  notes.ignore(place, `${slug} is no slug (3 to 40 characters a-z, 0-9 and -); give one with --slug`);
  return undefined;
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

function project(settings: Settings, slug: string | undefined): Omit<WranglerProject, 'refused' | 'ignored'> {
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
