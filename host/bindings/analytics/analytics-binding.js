/**
 * An Analytics Engine binding inside workerd. What is written without an await between goes to the host together, once
 * the handler has made way; the answer to its caller does not wait for that.
 *
 * It is the module of a `wrapped` binding (workerd.capnp): config.ts embeds it, and workerd alone runs it. workerd's own
 * (1.20261117.1) takes a request for each point and does not know its dataset. Limits and texts are as there.
 */
import entrypoints from 'cloudflare-internal:workers';

const MOST_INDEXES = 1;
const MOST_VALUES = 20;
const MOST_INDEX_BYTES = 96;
const MOST_BLOB_BYTES = 16_000;
/** Without an await between. Cloudflare takes as many of an invocation. */
const MOST_POINTS = 250;
/** Of one message, characters; a point more may be in it. */
const MESSAGE = 200_000;

const decoder = new TextDecoder();
const encoder = new TextEncoder();
const size = (text) => encoder.encode(text).length;

function text(value) {
  if (value === null || value === undefined) return null;
  if (value instanceof ArrayBuffer || ArrayBuffer.isView(value)) return decoder.decode(value);
  return String(value);
}

/** @returns [index, blobs, doubles] @throws TypeError */
function checked({ indexes = [], blobs = [], doubles = [] } = {}) {
  if (indexes.length > MOST_INDEXES) throw new TypeError(`Maximum of ${MOST_INDEXES} indexes supported.`);
  if (blobs.length > MOST_VALUES) throw new TypeError(`Maximum of ${MOST_VALUES} blobs supported.`);
  if (doubles.length > MOST_VALUES) throw new TypeError(`Maximum of ${MOST_VALUES} doubles supported.`);
  const index = text(indexes[0]);
  if (index !== null && size(index) > MOST_INDEX_BYTES)
    throw new TypeError(`Size of indexes[0] exceeds ${MOST_INDEX_BYTES} bytes.`);
  const texts = Array.from(blobs, text);
  if (texts.reduce((sum, one) => sum + (one === null ? 0 : size(one)), 0) > MOST_BLOB_BYTES)
    throw new TypeError(`Cumulative size of blobs exceeds ${MOST_BLOB_BYTES} bytes.`);
  return [index, texts, Array.from(doubles, Number)];
}

/** @param {{dataset: string, store: {fetch: typeof fetch}}} inner */
export default function bindDataset({ dataset, store }) {
  let waiting = [];

  async function send(points) {
    const answer = await store.fetch('http://analytics/', {
      method: 'POST',
      body: `["${dataset}",[${points.join(',')}]]`,
    });
    await answer.body?.cancel();
    if (answer.status === 503) throw new Error('its database cannot be reached');
  }

  async function flush() {
    // After what runs now: all that it writes goes together, and whatever fails is not its failure.
    await undefined;
    const points = waiting;
    waiting = [];
    try {
      const sent = [];
      for (let from = 0, to = 0; from < points.length; from = to) {
        for (let length = 0; to < points.length && length < MESSAGE; to++) length += points[to].length;
        sent.push(send(points.slice(from, to)));
      }
      await Promise.all(sent);
    } catch (error) {
      console.warn(`writeDataPoint(): data points of ${dataset} did not reach the host: ${error.message}`);
    }
  }

  return {
    writeDataPoint(point) {
      try {
        const line = JSON.stringify(checked(point ?? {}));
        if (waiting.length >= MOST_POINTS) throw new TypeError(`Maximum of ${MOST_POINTS} data points supported.`);
        // Outside of a handler nothing can wait for it, which throws here.
        if (waiting.length === 0) entrypoints.waitUntil(flush());
        waiting.push(line);
      } catch (error) {
        // As on Cloudflare, the handler does not notice.
        console.error(`writeDataPoint(): ${error?.message}`);
      }
    },
  };
}
