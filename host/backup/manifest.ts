/**
 * The list of what a backup holds, with a SHA-256 of every file and a proof over all of it. It is written last: what
 * has no manifest is no backup. A manifest is read from outside, so this is the boundary where it is checked.
 */
import { z } from 'zod';
import { Problem } from '../shared/problem.ts';
import { FILES, SEALED } from './layout.ts';
import { BackupKeys } from './passphrase.ts';

const FORMAT = 'turnpike-backup';
const VERSION = 1;

const fileSchema = z.strictObject({
  /** Inside the backup, below `files/` or `sealed/`. */
  path: z.string().refine(isSafePath, 'leads out of the backup'),
  bytes: z.number().int().min(0),
  sha256: z.string().regex(/^[0-9a-f]{64}$/),
});

const contentSchema = z.strictObject({
  format: z.literal(FORMAT),
  version: z.literal(VERSION),
  id: z.string(),
  hostVersion: z.string(),
  /** Every tenant's data is as of a moment between these two. ISO 8601. */
  startedAt: z.string(),
  finishedAt: z.string(),
  /** Where objects' bytes were: on disk they are in `files/`, too. */
  objects: z.enum(['disk', 's3']),
  derivation: z.strictObject({
    function: z.literal('scrypt'),
    cost: z.number().int(),
    blockSize: z.number().int(),
    salt: z.string(),
  }),
  files: z.array(fileSchema).refine(areApart, 'names a file twice'),
});
const manifestSchema = z.strictObject({ content: contentSchema, proof: z.string() });

export type BackupFile = z.infer<typeof fileSchema>;
export type BackupContent = z.infer<typeof contentSchema>;

export function makeContent(
  given: Pick<BackupContent, 'id' | 'hostVersion' | 'startedAt' | 'finishedAt' | 'objects' | 'derivation' | 'files'>,
): BackupContent {
  return { format: FORMAT, version: VERSION, ...given };
}

export function manifestText(content: BackupContent, keys: BackupKeys): string {
  return `${JSON.stringify({ content, proof: keys.prove(canonical(content)) }, null, 1)}\n`;
}

/**
 * Reads a manifest and proves it with the passphrase.
 * @throws Problem invalid_field when it is damaged, of another kind, or the passphrase is another
 */
export async function openManifest(
  text: string,
  passphrase: string,
): Promise<{ content: BackupContent; keys: BackupKeys }> {
  const parsed = manifestSchema.safeParse(parseJson(text));
  if (!parsed.success) {
    throw new Problem(
      'invalid_field',
      'The backup’s manifest is damaged, or a newer version wrote it; update turnpike or use another backup.',
    );
  }
  const { content, proof } = parsed.data;
  const keys = await BackupKeys.derive(passphrase, content.derivation);
  if (!keys.isProof(canonical(content), proof)) {
    throw new Problem(
      'invalid_field',
      'The passphrase does not match this backup, or the backup’s manifest was changed; check the passphrase file.',
    );
  }
  return { content, keys };
}

/** The order of members as in the schema: what zod answers, whatever order the file has. */
function canonical(content: BackupContent): string {
  return JSON.stringify(contentSchema.parse(content));
}

function isSafePath(path: string): boolean {
  const parts = path.split('/');
  if (parts[0] !== FILES && parts[0] !== SEALED) return false;
  return (
    parts.length > 1 && parts.every((part) => part !== '' && part !== '.' && part !== '..' && !part.includes('\0'))
  );
}

/** No two files end up in one place, on disks that do not tell case apart either, and none where another has a folder. */
function areApart(files: { path: string }[]): boolean {
  const places = new Set<string>();
  const folders = new Set<string>();
  for (const { path } of files) {
    const [, ...parts] = path.normalize('NFC').toLowerCase().split('/');
    const place = parts.join('/');
    if (places.has(place)) return false;
    places.add(place);
    for (let depth = 1; depth < parts.length; depth++) folders.add(parts.slice(0, depth).join('/'));
  }
  return ![...places].some((place) => folders.has(place));
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
