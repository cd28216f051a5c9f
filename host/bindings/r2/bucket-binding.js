/**
 * `env.BUCKET` inside workerd: its own R2 binding, with a cheaper `get` of a whole object.
 *
 * workerd decodes an object's metadata with a JSON codec that it builds for each answer (src/workerd/api/r2-rpc.c++), a
 * fifth of what a get costs it. Here `get(key)` is one fetch, and the metadata is a field of the answer (`parseWholeGet`
 * in host/bindings/r2/requests.ts). All else stays workerd's: the other methods, options, arguments that are no string,
 * and whatever is refused, so that errors are its errors.
 *
 * It is the module of a `wrapped` binding (workerd.capnp): config.ts embeds it, and workerd alone runs it.
 */

/** Where the metadata is in an answer; see `metadataInField` in host/bindings/r2/protocol.ts. */
const METADATA = 'x-turnpike-object';

/**
 * @param {{bucket: R2Bucket, store: Fetcher}} inner workerd's binding, and the same store to fetch from
 * @returns {R2Bucket} workerd's binding, with another `get`
 */
export default function bindBucket({ bucket, store }) {
  const { get } = bucket;
  Object.defineProperty(bucket, 'get', {
    configurable: true,
    writable: true,
    value(...given) {
      const [key] = given;
      // A lone surrogate has no percent-encoding.
      if (given.length !== 1 || typeof key !== 'string' || !key.isWellFormed()) return get.apply(bucket, given);
      return getWhole(store, key, () => get.call(bucket, key));
    },
  });
  return bucket;
}

/** @param {() => Promise<GetResult | null>} otherwise asks again in workerd's own way, for its error */
async function getWhole(store, key, otherwise) {
  let response;
  try {
    response = await store.fetch(`http://r2/?get=${encodeURIComponent(key)}`);
  } catch {
    return otherwise();
  }
  if (response.status === 200) return new GetResult(key, response);
  if (response.status === 404) return null;
  return otherwise();
}

/** As workerd's class of the name; `R2ObjectBody` to TypeScript. */
class GetResult {
  #response;

  constructor(key, response) {
    const object = JSON.parse(response.headers.get(METADATA));
    const { cacheExpiry } = object.httpFields;
    if (cacheExpiry !== undefined) object.httpFields.cacheExpiry = new Date(cacheExpiry);
    this.#response = response;
    // In the order in which workerd's object has them.
    this.ssecKeyMd5 = undefined;
    this.storageClass = object.storageClass;
    this.range = object.range;
    this.customMetadata = {};
    for (const { k, v } of object.customFields) this.customMetadata[k] = v;
    this.httpMetadata = object.httpFields;
    this.uploaded = new Date(object.uploaded);
    this.checksums = new Checksums(object.checksums);
    this.httpEtag = `"${object.etag}"`;
    this.etag = object.etag;
    this.size = object.size;
    this.version = object.version;
    this.key = key;
  }

  get body() {
    return this.#response.body;
  }

  get bodyUsed() {
    return this.#response.bodyUsed;
  }

  arrayBuffer() {
    return this.#response.arrayBuffer();
  }

  bytes() {
    return this.#response.bytes();
  }

  text() {
    return this.#response.text();
  }

  json() {
    return this.#response.json();
  }

  async blob() {
    return new Blob([await this.#response.arrayBuffer()], { type: this.httpMetadata.contentType ?? '' });
  }

  writeHttpMetadata(headers) {
    const { contentType, contentLanguage, contentDisposition, contentEncoding, cacheControl, cacheExpiry } =
      this.httpMetadata;
    if (contentType !== undefined) headers.set('content-type', contentType);
    if (contentLanguage !== undefined) headers.set('content-language', contentLanguage);
    if (contentDisposition !== undefined) headers.set('content-disposition', contentDisposition);
    if (contentEncoding !== undefined) headers.set('content-encoding', contentEncoding);
    if (cacheControl !== undefined) headers.set('cache-control', cacheControl);
    if (cacheExpiry !== undefined) headers.set('expires', cacheExpiry.toUTCString());
  }
}

/** The algorithms in the order of their numbers on the wire (r2-api.capnp). */
const ALGORITHMS = ['md5', 'sha1', 'sha256', 'sha384', 'sha512'];

class Checksums {
  /** @param {Record<string, string>} digests in hexadecimal, by the algorithm's number */
  constructor(digests) {
    for (let index = ALGORITHMS.length - 1; index >= 0; index--) {
      const digest = digests[index];
      this[ALGORITHMS[index]] = digest === undefined ? undefined : Uint8Array.fromHex(digest).buffer;
    }
  }

  toJSON() {
    const json = {};
    for (const algorithm of ALGORITHMS)
      if (this[algorithm] !== undefined) json[algorithm] = new Uint8Array(this[algorithm]).toHex();
    return json;
  }
}
