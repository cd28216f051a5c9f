/**
 * wrangler's configuration of a project (wrangler.jsonc, wrangler.json, wrangler.toml) as a manifest of this host. What
 * the host lacks is named, so that a deploy can stop before it is paid; what does not matter here is named too. The keys
 * are in wrangler-keys.ts, their types in wrangler-shapes.ts, what becomes of them in wrangler-project.ts; what a named
 * environment inherits and how it is called is as in wrangler 4.164.0.
 */
import { SLUG } from '../shared/slug.ts';
import { WRANGLER_KEYS } from './wrangler-keys.ts';
import { project, type WranglerProject } from './wrangler-project.ts';
import { judge, Notes, Sections, valueAt } from './wrangler-sections.ts';
import { type Settings, shapes } from './wrangler-shapes.ts';
import { isNothing, type Place, placeName, readDocument } from './wrangler-text.ts';

export type { WranglerProject } from './wrangler-project.ts';
export { WranglerFault } from './wrangler-text.ts';

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
