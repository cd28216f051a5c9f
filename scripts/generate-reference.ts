/**
 * Writes what is said of `turnpike.host.json` and `turnpike.json` from their schemas: a page and a JSON Schema of each.
 * Run `node scripts/generate-reference.ts` after a change of a setting; test/reference.test.ts says when that is due.
 */
import { writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { z } from 'zod';
import { manifestSchema } from '../host/manifest/project-manifest.ts';
import { type Key, WRANGLER_KEYS } from '../host/manifest/wrangler-keys.ts';
import { configSchema } from '../host/shared/config.ts';
import { settings } from '../host/supervisor/configuration.ts';

type Schema = z.core.JSONSchema.BaseSchema;

const GENERATED = '<!-- Made by scripts/generate-reference.ts; do not edit. -->';

/** Texts of the generated files by their path from the root. */
export function references(): Record<string, string> {
  return {
    'host/SETTINGS.md': hostPage(),
    'host/cli/project/MANIFEST.md': projectPage(),
    'host/manifest/WRANGLER.md': wranglerPage(),
    'config/turnpike.host.schema.json': json(hostSchema()),
    'config/turnpike.schema.json': json({ title: 'A project for Turnpike: turnpike.json', ...projectSchema() }),
  };
}

/** What a file may hold: every setting has a default, so that none is required. */
function hostSchema(): Schema {
  const schema = z.toJSONSchema(configSchema, { io: 'input' });
  for (const { path, default: value } of settings()) {
    const leaf = path.reduce<Schema>((node, key) => property(node, key), schema);
    leaf.default = value as NonNullable<Schema['default']>;
  }
  allowLess(schema);
  const properties = { $schema: { type: 'string', description: 'path or URL of this schema, for editors' } as const };
  return {
    title: 'Settings of a Turnpike host: turnpike.host.json',
    ...schema,
    properties: { ...properties, ...schema.properties },
  };
}

function projectSchema(): Schema {
  return z.toJSONSchema(manifestSchema, { io: 'input' });
}

function allowLess(schema: Schema): void {
  if (schema.properties === undefined) return;
  delete schema.required;
  for (const child of Object.values(schema.properties)) if (typeof child === 'object') allowLess(child);
}

function property(schema: Schema, key: string): Schema {
  const child = schema.properties?.[key];
  if (typeof child !== 'object') throw new Error(`The schema has no ${key}`);
  return child;
}

function hostPage(): string {
  const schema = hostSchema();
  const rows = settings().map(({ path, key, description, default: value }) => {
    const type = typeOf(path.reduce<Schema>((node, part) => property(node, part), schema));
    return [code(key), type, code(JSON.stringify(value)), prose(description)];
  });
  return `${GENERATED}
# Settings of a host

A host reads \`config/turnpike.default.json\`, then \`turnpike.host.json\` in the folder in which it is started, then the environment, then flags; the later one wins. The file has the nesting of the keys: \`storage.s3.bucket\` is \`{"storage": {"s3": {"bucket": "…"}}}\` in it, \`TURNPIKE_STORAGE_S3_BUCKET\` in the environment and \`--storage-s3-bucket\` as a flag. Lists and records are JSON there, or, for lists, texts with commas between. Unknown settings are refused.

Keep secrets out of the file where the environment can hold them. With this line in the file, editors complete and check it (the path is that of a host started in its checkout):

\`\`\`json
{ "$schema": "./config/turnpike.host.schema.json" }
\`\`\`

Up to version 0.1.0 the file had the name \`turnpike.json\`. It is still read where it holds settings of a host; the start says what to rename. A project's \`turnpike.json\` is [another file](cli/project/MANIFEST.md).

${table(['setting', 'takes', 'default', ''], rows)}
`;
}

function projectPage(): string {
  return `${GENERATED}
# A project's \`turnpike.json\`

\`turnpike deploy\` and \`turnpike update\` read it beside the entry file, or in the working folder; \`--manifest\` names another one. Flags win over it. Every member may be missing, and unknown ones are refused. It holds no secret: it names where each one is. A host's own settings are in [turnpike.host.json](../../SETTINGS.md).

\`\`\`json
{
  "$schema": "../turnpike/config/turnpike.schema.json",
  "slug": "hello",
  "entry": "src/index.ts",
  "bindings": { "kv": true },
  "secrets": { "API_KEY": "env:API_KEY", "CERTIFICATE": "@certificate.pem" },
  "paidRoutes": [{ "method": "GET", "path": "/report", "price": "0.01" }]
}
\`\`\`

With \`$schema\` (the path from the project to a checkout of Turnpike), editors complete and check it.

${table(['member', 'takes', ''], projectRows(projectSchema(), ''))}
`;
}

function wranglerPage(): string {
  return `${GENERATED}
# wrangler's configuration

In a folder with \`wrangler.json\`, \`wrangler.jsonc\` or \`wrangler.toml\` (or with \`.wrangler/deploy/config.json\`, which build tools write), \`turnpike deploy\` and \`turnpike update\` need no argument. \`--env <name>\` chooses an environment, with wrangler's rules of what it inherits. A \`turnpike.json\` beside it adds to it, and wins member by member: prices go there. \`--secrets-from .dev.vars\` gives secrets.

Ids of KV namespaces, ids of D1 databases and names of R2 buckets become the ids of stores of the deployment: a binding that is renamed keeps its data. What stands for an id that was never filled in counts as none.

Every key of wrangler 4.164.0 is *used*, *ignored* with a reason (the command says so), or *refused*: a deploy stops with the file, the line and the key before anything is sent or paid.

${table(['key', '', ''], wranglerRows([...WRANGLER_KEYS], ''))}
`;
}

function wranglerRows(keys: [string, Key][], place: string): string[][] {
  return keys.flatMap(([name, { use, reason, members }]) => [
    [code(`${place}${name}`), use === 'translated' ? 'used' : use, prose(reason ?? '')],
    ...wranglerRows(
      Object.entries(members ?? {}).filter(([, member]) => member.use !== 'translated'),
      `${place}${name}.`,
    ),
  ]);
}

function projectRows(schema: Schema, place: string): string[][] {
  return Object.entries(schema.properties ?? {}).flatMap(([name, child]) => {
    if (typeof child !== 'object') return [];
    const key = `${place}${name}`;
    const items = typeof child.items === 'object' && !Array.isArray(child.items) ? child.items : undefined;
    return [
      [code(key), typeOf(child), prose(child.description ?? '')],
      ...projectRows(child, `${key}.`),
      ...(items === undefined ? [] : projectRows(items, `${key}[].`)),
    ];
  });
}

/** In the words of JSON: `number`, `"off" or "acme"`, `list of string`. */
function typeOf(schema: Schema): string {
  if (schema.enum) return schema.enum.map((value) => code(JSON.stringify(value))).join(' or ');
  if (schema.anyOf) return [...new Set(schema.anyOf.map((one) => typeOf(one as Schema)))].join(' or ');
  if (Array.isArray(schema.type)) return schema.type.join(' or ');
  if (schema.type === 'array') return `list of ${typeOf(schema.items as Schema)}`;
  if (schema.type === 'object' && !schema.properties && typeof schema.additionalProperties === 'object') {
    return `record of ${typeOf(schema.additionalProperties)}`;
  }
  return schema.type ?? 'anything';
}

function table(head: string[], rows: string[][]): string {
  const line = (cells: string[]) => `| ${cells.map((cell) => cell.replaceAll('|', '\\|')).join(' | ')} |`;
  return [line(head), line(head.map(() => '---')), ...rows.map(line)].join('\n');
}

/** Markdown takes `<slug>` for HTML. */
function prose(text: string): string {
  return text.replaceAll('<', '&lt;');
}

function code(text: string): string {
  return `\`${text}\``;
}

function json(value: unknown): string {
  return `${JSON.stringify(value, undefined, 2)}\n`;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  for (const [path, text] of Object.entries(references())) writeFileSync(new URL(`../${path}`, import.meta.url), text);
}
