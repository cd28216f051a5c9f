/** Lists of the bucket of objects, as ListObjectsV2 answers them. */
import type { BucketRecords, Listed } from './records.ts';

export interface Page {
  /** One more than fits, where there are more. */
  keys: Listed[];
  /** What the keys up to the next `/` begin with, instead of these. */
  prefixes: string[];
}

/** Behind each key that begins so. */
const LAST = '\u{10ffff}';

/** A page with what is below the prefix, a level deep: a folder counts once, however much is in it. */
export async function commonPrefixes(
  records: Pick<BucketRecords, 'list'>,
  tenant: string,
  prefix: string,
  after: string,
  most: number,
): Promise<Page> {
  const page: Page = { keys: [], prefixes: [] };
  let from = after.endsWith('/') ? after + LAST : after;
  while (page.keys.length + page.prefixes.length <= most) {
    const [next] = await records.list(tenant, prefix, from, 1);
    if (!next) break;
    const slash = next.key.indexOf('/', prefix.length);
    if (slash < 0) {
      page.keys.push(next);
      from = next.key;
    } else {
      const folder = next.key.slice(0, slash + 1);
      page.prefixes.push(folder);
      from = folder + LAST;
    }
  }
  return page;
}

/** @param own what each name begins with outside; names hold no characters that mean anything in XML */
export function listXml(own: string, { keys, prefixes }: Page, most: number): string {
  const names = [...keys.map(({ key }) => key), ...prefixes].sort();
  const shown = new Set(names.slice(0, most));
  const more = names.length > most;
  const contents = keys
    .filter(({ key }) => shown.has(key))
    .map(
      ({ key, etag, at, bytes }) =>
        `<Contents><Key>${own}${key}</Key><LastModified>${at.toISOString()}</LastModified><ETag>&quot;${etag}&quot;</ETag><Size>${bytes}</Size></Contents>`,
    );
  const common = prefixes
    .filter((name) => shown.has(name))
    .map((name) => `<CommonPrefixes><Prefix>${own}${name}</Prefix></CommonPrefixes>`);
  const next = more ? `<NextContinuationToken>${own}${names[most - 1]}</NextContinuationToken>` : '';
  return `<?xml version="1.0" encoding="UTF-8"?><ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><IsTruncated>${more}</IsTruncated><KeyCount>${shown.size}</KeyCount>${next}${contents.join('')}${common.join('')}</ListBucketResult>`;
}
