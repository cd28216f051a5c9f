/**
 * Previews: a version of a deployment at an address of its own, `<id>--<slug>`. The id is random, because a version may
 * have faults that a later one has not: nobody finds it who was not told.
 */

/** Beginning of an address; no slug that is deployed anew has it. */
const LABEL = /^([0-9a-f]{12})--(.+)$/;

export interface PreviewLabel {
  id: string;
  slug: string;
}

/** @param label first segment of a path, or of a host name */
export function previewOf(label: string): PreviewLabel | undefined {
  const [, id, slug] = LABEL.exec(label) ?? [];
  return id === undefined || slug === undefined ? undefined : { id, slug };
}

export function previewLabel({ id, slug }: PreviewLabel): string {
  return `${id}--${slug}`;
}

/** How edges and the runtime call an instance: by its slug, or as the preview of one. No slug has an `@`. */
export function instanceKey(slug: string, preview: string | undefined): string {
  return preview === undefined ? slug : `${slug}@${preview}`;
}

export function ofInstanceKey(key: string): { slug: string; preview: string | undefined } {
  const at = key.indexOf('@');
  return at < 0 ? { slug: key, preview: undefined } : { slug: key.slice(0, at), preview: key.slice(at + 1) };
}
