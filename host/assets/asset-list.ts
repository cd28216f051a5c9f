/**
 * What an owner says of a deployment's static files: which file is where, and how they are served. The boundary for it:
 * paths become names on the host's disk, and only what is checked here does.
 */
import { z } from 'zod';
import { ENV_NAME } from '../bindings/binding.ts';
import type { AssetSettings } from '../shared/contracts.ts';

/** As Cloudflare has it: https://developers.cloudflare.com/workers/platform/limits/#static-assets */
export const MAX_FILE_BYTES = 25 * 1_048_576;
export const MAX_FILES = 20_000;
const MAX_RULES_BYTES = 256 * 1_024;
const MAX_PATH = 1_024;
/** The longest name that Linux gives a file, bytes. */
const MAX_NAME = 255;

export const fileHash = z.string().regex(/^[0-9a-f]{64}$/, 'takes the SHA-256 of a file, 64 hexadecimal digits');

/** `/img/logo.png`: decoded, without `.` and `..`. */
function isPath(path: string): boolean {
  if (!path.startsWith('/') || path.length > MAX_PATH || !path.isWellFormed() || /\p{Cc}/u.test(path)) return false;
  const names = path.slice(1).split('/');
  return names.every((name) => name !== '' && name !== '.' && name !== '..' && Buffer.byteLength(name) <= MAX_NAME);
}

/** A file and a folder of one name cannot be on one disk. @returns such a path */
function clash(files: Record<string, string>): string | undefined {
  for (const path of Object.keys(files)) {
    for (let end = path.lastIndexOf('/'); end > 0; end = path.lastIndexOf('/', end - 1))
      if (Object.hasOwn(files, path.slice(0, end))) return path.slice(0, end);
  }
  return undefined;
}

const rules = z
  .string()
  .refine((text) => Buffer.byteLength(text) <= MAX_RULES_BYTES, `takes at most ${MAX_RULES_BYTES} bytes`);

export const assetsSchema = z.strictObject({
  files: z
    .record(z.string().refine(isPath, 'is not a path of a file, such as /img/logo.png'), fileHash)
    .refine((files) => Object.keys(files).length <= MAX_FILES, `takes at most ${MAX_FILES} files`)
    .superRefine((files, context) => {
      const path = clash(files);
      if (path) context.addIssue({ code: 'custom', message: `has ${path} as a file and as a folder` });
    })
    .describe('Path, such as /index.html -> SHA-256 of the file, which was sent before.'),
  headers: rules.optional().describe('Text of _headers.'),
  redirects: rules.optional().describe('Text of _redirects.'),
  binding: z.string().regex(ENV_NAME).optional().describe('Name in env of a service that answers with these files.'),
  htmlHandling: z.enum(['auto-trailing-slash', 'force-trailing-slash', 'drop-trailing-slash', 'none']).optional(),
  notFoundHandling: z.enum(['single-page-application', '404-page', 'none']).optional(),
  basePath: z.string().max(MAX_PATH).startsWith('/').optional().describe('Path below which the files are.'),
  runWorkerFirst: z
    .union([z.boolean(), z.array(z.string().max(MAX_PATH)).max(100)])
    .optional()
    .describe('Which requests the code answers although there is a file: all, or those of these patterns.'),
});

/** Which file is where, with the texts of `_headers` and `_redirects`. Kept by its digest, and never changed. */
export type AssetList = Pick<z.infer<typeof assetsSchema>, 'files' | 'headers' | 'redirects'>;

/** As workerd's service of static files takes it (`AssetsService.config` in workerd.capnp). */
export function workerdConfig(settings: AssetSettings, list: AssetList): string {
  return JSON.stringify({
    html_handling: settings.htmlHandling,
    not_found_handling: settings.notFoundHandling,
    base_path: settings.basePath,
    run_worker_first: settings.runWorkerFirst,
    headers: list.headers,
    redirects: list.redirects,
  });
}
