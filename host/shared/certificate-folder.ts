/** File names in the folder of certificates, which control writes and edges read: one file with key and chain a name. */
import { readdirSync } from 'node:fs';

export const CERTIFICATE_SUFFIX = '.pem';
/** File names should have no `*`: `_wildcard.example.com.pem` holds `*.example.com`. */
const WILDCARD_FILE = '_wildcard';

/** Name of the file that holds key and chain of a name. */
export function certificateFile(name: string): string {
  return `${name.replace(/^\*/, WILDCARD_FILE)}${CERTIFICATE_SUFFIX}`;
}

/** Names that have a file in the folder; none where there is no folder yet. */
export function certificateNames(folder: string): string[] {
  try {
    return readdirSync(folder)
      .filter((file) => file.endsWith(CERTIFICATE_SUFFIX))
      .map((file) => file.slice(0, -CERTIFICATE_SUFFIX.length).replace(WILDCARD_FILE, '*'));
  } catch {
    return [];
  }
}
