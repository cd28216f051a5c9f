/** Bindings of Cloudflare that this host does not have, and what owners are told of each. */

/** What it is, and what the code can do instead. */
interface Absent {
  what: string;
  instead: string;
}

/** By their keys beside the other bindings. */
export const ABSENT: Readonly<Record<'email' | 'browser' | 'vectorize' | 'images', Absent>> = {
  email: { what: 'It sends mail by Email Routing', instead: 'call a mail service with fetch()' },
  browser: { what: 'Browser Rendering is a browser at Cloudflare', instead: 'call another one with fetch()' },
  vectorize: { what: 'Vectorize is a database of vectors at Cloudflare', instead: 'call another one with fetch()' },
  images: { what: 'Cloudflare Images transforms pictures', instead: 'transform them in the code' },
};

/** What follows the name of such a key in a refusal; undefined for others. */
export function whyAbsent(key: string): string | undefined {
  const absent = Object.hasOwn(ABSENT, key) ? ABSENT[key as keyof typeof ABSENT] : undefined;
  return absent && `is not on this host. ${absent.what}: leave it out, or ${absent.instead}`;
}
