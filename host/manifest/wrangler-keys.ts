/**
 * Every key of wrangler's configuration, and what becomes of it here. The keys are those of `config-schema.json` in the
 * npm package wrangler 4.164.0 (a test compares them); which of them a named environment inherits is from
 * `normalizeAndValidateConfig` in its `cli.js`.
 */
import { ABSENT } from '../bindings/absent.ts';

export interface Key {
  use: 'translated' | 'ignored' | 'refused';
  /** Why it is ignored or refused; where it is refused, what to do next. */
  reason?: string;
  /** Of an object, or of each object in a list. Without them nobody looks into the value. */
  members?: Readonly<Record<string, Key>>;
  /** It is refused by these members instead of as a whole. */
  parts?: readonly string[];
  /** Each element of the parts by itself. */
  each?: boolean;
  /** A value that asks for no more than a missing one. */
  harmless?: unknown;
}

/**
 * How a named environment sees a key: `top`: as at the top level, where alone it may be; `inherited`: from the top level,
 * where it has none itself; `own`: only its own.
 */
export type Scope = 'top' | 'inherited' | 'own';
export type WranglerKey = Key & { scope: Scope };

const translated: Key = { use: 'translated' };
const ignored = (reason: string): Key => ({ use: 'ignored', reason });
const refused = (reason: string): Key => ({ use: 'refused', reason });
const objects = (members: Readonly<Record<string, Key>>): Key => ({ use: 'translated', members });

/** @param what `X does …`, a sentence without its end @param instead what else the code can do */
function cloudflareOnly(what: string, instead?: string): Key {
  return refused(`${what}. This host does not have it: remove it from the file${instead ? `, or ${instead}` : ''}.`);
}

const DEVELOPMENT = ignored('only "wrangler dev" reads it');
const ACCOUNT = ignored('it is about an account at Cloudflare');
const PLACE = ignored('the data is where this host is');
const TELEMETRY = ignored('nothing is reported to Cloudflare');
const BUILD_OUTPUT = ignored('a build tool wrote it for wrangler');

const TOP: Record<string, Key> = {
  $schema: ignored('it is for editors'),
  env: translated,
  alias: translated,
  dev: DEVELOPMENT,
  keep_vars: ignored('the vars of a deployment are those of the file; there are no others to keep'),
  send_metrics: TELEMETRY,
  dependencies_instrumentation: TELEMETRY,
  pages_build_output_dir: refused(
    'This is a Pages project, and this host runs Workers only. Give "main", the file with the handler, and remove this key.',
  ),
  site: refused(
    'Workers Sites keeps files in a KV namespace that only wrangler fills. Remove it, and import the files from the code or keep them in a KV namespace of your own.',
  ),
  wasm_modules: refused('It is for Workers without modules. Remove it, and import the .wasm file from the code.'),
  text_blobs: refused('It is for Workers without modules. Remove it, and import the text file from the code.'),
  data_blobs: refused('It is for Workers without modules. Remove it, and import the file from the code.'),
  addresses: cloudflareOnly(
    'Email Routing calls email() with mail that arrives at Cloudflare',
    'take mail in over HTTP',
  ),
};

const INHERITED: Record<string, Key> = {
  name: translated,
  main: translated,
  compatibility_date: translated,
  compatibility_flags: translated,
  account_id: ACCOUNT,
  workers_dev: ignored('there is no workers.dev here: the deployment has an address at this host'),
  preview_urls: ignored('every version has an address here, which nobody can guess; "turnpike versions" shows its id'),
  previews: ignored('only "wrangler preview" reads it'),
  route: ignored('attach a domain with "turnpike domains add"'),
  routes: ignored('attach a domain with "turnpike domains add"'),
  triggers: objects({
    crons: translated,
    events: cloudflareOnly('Events of Artifacts start Workflows at Cloudflare'),
  }),
  rules: objects({ type: translated, globs: translated, fallthrough: translated }),
  build: objects({ command: translated, cwd: translated, watch_dir: DEVELOPMENT }),
  no_bundle: translated,
  find_additional_modules: translated,
  preserve_file_names: translated,
  base_dir: translated,
  tsconfig: translated,
  minify: translated,
  keep_names: translated,
  jsx_factory: translated,
  jsx_fragment: translated,
  upload_source_maps: ignored('the host makes what it needs for stack traces itself'),
  python_modules: ignored('this host runs JavaScript and TypeScript only'),
  limits: ignored("the host's own limits apply"),
  placement: ignored('the handler runs where this host is'),
  cache: ignored('this host keeps no copies of answers: each request reaches the handler'),
  observability: ignored('"turnpike logs" and "turnpike tail" show what the handler prints'),
  logpush: ignored('"turnpike logs" and "turnpike tail" show what the handler prints'),
  logfwdr: cloudflareOnly('logfwdr is a binding inside Cloudflare'),
  first_party_worker: ignored('it is for Workers of Cloudflare itself'),
  access: ignored('Cloudflare Access does not stand before this host: the handler has to check itself who calls'),
  compliance_region: {
    ...refused('It demands data centers of Cloudflare that are certified. Remove it if this host may run the handler.'),
    harmless: 'public',
  },
  assets: objects({
    directory: translated,
    binding: translated,
    html_handling: translated,
    not_found_handling: translated,
    base_path: translated,
    run_worker_first: translated,
  }),
  migrations: objects({
    tag: ignored('classes are found again by their names, through all that were renamed'),
    new_classes: translated,
    new_sqlite_classes: translated,
    renamed_classes: translated,
    deleted_classes: translated,
    transferred_classes: cloudflareOnly('It moves the objects of another Worker here', 'copy what they hold'),
  }),
  exports: cloudflareOnly('It declares Durable Objects, Workflows and entrypoints', 'keep the state in D1 or KV'),
};

const OWN: Record<string, Key> = {
  vars: translated,
  secrets: objects({ required: translated }),
  define: translated,
  kv_namespaces: objects({ binding: translated, id: translated, preview_id: DEVELOPMENT, remote: DEVELOPMENT }),
  d1_databases: objects({
    binding: translated,
    database_name: translated,
    database_id: translated,
    migrations_dir: translated,
    migrations_table: translated,
    migrations_pattern: translated,
    preview_database_id: DEVELOPMENT,
    remote: DEVELOPMENT,
    jurisdiction: PLACE,
    database_internal_env: ACCOUNT,
  }),
  r2_buckets: objects({
    binding: translated,
    bucket_name: translated,
    preview_bucket_name: DEVELOPMENT,
    remote: DEVELOPMENT,
    local_dev: DEVELOPMENT,
    jurisdiction: PLACE,
  }),

  durable_objects: objects({
    code_update_strategy: ignored('an update ends calls in flight after two seconds, and WebSockets at once'),
    bindings: objects({
      name: translated,
      class_name: translated,
      script_name: translated,
      environment: ignored('it belongs to script_name'),
    }),
  }),
  workflows: objects({
    binding: translated,
    name: translated,
    class_name: translated,
    script_name: translated,
    limits: ignored('each instance may take 10,000 steps'),
    concurrency: ignored('instances run at once as they come'),
    schedules: cloudflareOnly('It starts instances by the clock', 'use "triggers.crons" and create() in scheduled()'),
    default_retention: ignored('instances that have ended are kept for 30 days, unless create() says otherwise'),
    jurisdiction: PLACE,
  }),
  queues: objects({
    producers: objects({
      binding: translated,
      queue: translated,
      delivery_delay: cloudflareOnly('It delays what is sent without a delay', 'give delaySeconds to send()'),
      remote: DEVELOPMENT,
    }),
    consumers: objects({
      queue: translated,
      type: translated,
      max_batch_size: translated,
      max_batch_timeout: translated,
      max_retries: translated,
      dead_letter_queue: translated,
      max_concurrency: translated,
      visibility_timeout_ms: ignored('it is for consumers that pull'),
      retry_delay: translated,
    }),
  }),
  services: objects({
    binding: translated,
    service: translated,
    entrypoint: translated,
    props: translated,
    remote: DEVELOPMENT,
  }),
  hyperdrive: objects({
    binding: translated,
    id: ignored(
      'the connection string is a secret of the deployment: for the binding NAME it is NAME_CONNECTION_STRING',
    ),
    localConnectionString: translated,
    remote: DEVELOPMENT,
  }),
  version_metadata: objects({ binding: translated }),
  ratelimits: objects({ name: translated, namespace_id: translated, simple: translated }),

  ai: objects({ binding: translated, staging: ACCOUNT, remote: DEVELOPMENT }),
  analytics_engine_datasets: objects({ binding: translated, dataset: translated, remote: DEVELOPMENT }),
  tail_consumers: objects({
    service: translated,
    environment: ignored('an environment is a deployment of its own: name that as the service'),
  }),
  ai_search: cloudflareOnly('AI Search finds text in documents at Cloudflare', 'call a search over HTTP with fetch()'),
  ai_search_namespaces: cloudflareOnly(
    'AI Search finds text in documents at Cloudflare',
    'call a search over HTTP with fetch()',
  ),
  agent_memory: cloudflareOnly('Agent Memory keeps what agents know at Cloudflare', 'keep it in D1 or KV'),
  vectorize: cloudflareOnly(ABSENT.vectorize.what, ABSENT.vectorize.instead),
  browser: cloudflareOnly(ABSENT.browser.what, ABSENT.browser.instead),
  images: cloudflareOnly(ABSENT.images.what, ABSENT.images.instead),
  media: cloudflareOnly('Media Transformations changes videos at Cloudflare'),
  stream: cloudflareOnly('Cloudflare Stream keeps videos', 'keep them in R2'),
  analytics: cloudflareOnly('It queries analytics at Cloudflare with SQL', 'keep the figures in D1'),
  send_email: cloudflareOnly(ABSENT.email.what, ABSENT.email.instead),
  mtls_certificates: cloudflareOnly('It is a certificate of clients that is kept at Cloudflare'),
  dispatch_namespaces: cloudflareOnly('Workers for Platforms calls Workers of customers by name'),
  worker_loaders: cloudflareOnly('A Worker Loader starts code that is made at run time'),
  pipelines: cloudflareOnly('Pipelines takes records in at Cloudflare', 'put them into R2'),
  k2: cloudflareOnly('K2 is a stream of records at Cloudflare', 'put them into R2'),
  artifacts: cloudflareOnly('Artifacts keeps git repositories at Cloudflare', 'keep the files in R2'),
  flagship: cloudflareOnly('Flagship keeps feature flags at Cloudflare', 'keep them in KV or in vars'),
  secrets_store_secrets: cloudflareOnly(
    'Secrets Store keeps secrets of an account at Cloudflare',
    'set a secret with "turnpike secrets set" and read env.NAME, which is text and has no get()',
  ),
  vpc_services: cloudflareOnly('It reaches a private network through a tunnel of Cloudflare'),
  vpc_networks: cloudflareOnly('It reaches a private network through a tunnel of Cloudflare'),
  containers: cloudflareOnly('A container runs beside a Durable Object', 'run it elsewhere and call it with fetch()'),
  cloudchamber: cloudflareOnly('Cloudchamber runs containers at Cloudflare', 'run them elsewhere'),
  connect: refused(
    'It opens sockets that call connect() of the handler, and this host delivers HTTP only. Remove it from the file.',
  ),
  streaming_tail_consumers: cloudflareOnly(
    'A streaming Tail Worker gets traces while they are made',
    'name the Worker in "tail_consumers", whose tail() gets them whole',
  ),
  unsafe: refused(
    'It hands settings to Cloudflare that wrangler does not know, and neither does this host. Remove it.',
  ),
  unsafe_hello_world: cloudflareOnly('It is an example of a binding'),
};

/** Keys that are not in the schema: of earlier versions of wrangler, and of files that build tools write for it. */
const FORMER: Record<string, Key> = {
  legacy_env: ignored('each environment is a deployment of its own, as wrangler 4 has it'),
  usage_model: ACCOUNT,
  zone_id: ACCOUNT,
  type: ignored('the code is bundled the same way whatever it says'),
  miniflare: DEVELOPMENT,
  node_compat: {
    ...refused('wrangler 4 does not take it either. Remove it, and add "nodejs_compat" to "compatibility_flags".'),
    harmless: false,
  },
  legacy_assets: refused('wrangler 4 does not take it either. Remove it, and import the files from the code.'),
  configPath: BUILD_OUTPUT,
  userConfigPath: BUILD_OUTPUT,
  topLevelName: BUILD_OUTPUT,
  definedEnvironments: BUILD_OUTPUT,
  targetEnvironment: BUILD_OUTPUT,
};

function scoped(scope: Scope, keys: Record<string, Key>): [string, WranglerKey][] {
  return Object.entries(keys).map(([name, key]) => [name, { scope, ...key }]);
}

/** By name, as it is at the top level and in `env.<name>`. */
export const WRANGLER_KEYS: ReadonlyMap<string, WranglerKey> = new Map([
  ...scoped('top', TOP),
  ...scoped('inherited', INHERITED),
  ...scoped('own', OWN),
  ...scoped('inherited', FORMER),
]);

/** Those of {@link WRANGLER_KEYS} that are not in the schema of wrangler 4.164.0. */
export const FORMER_KEYS: ReadonlySet<string> = new Set(Object.keys(FORMER));
