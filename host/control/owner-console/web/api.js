// The owner's API, as who is signed in. The session is a bearer token: this tab alone has it, and no request carries it by itself.

const KEY = 'turnpike-session';
const MOST_TEXT = 262_144;

/** `{token, address, slug}`; slug: the token is for that one alone. */
export let session = restored();

function restored() {
  try {
    return JSON.parse(sessionStorage.getItem(KEY) ?? 'null');
  } catch {
    return null;
  }
}

export function keep(next) {
  session = next;
  if (next) sessionStorage.setItem(KEY, JSON.stringify(next));
  else sessionStorage.removeItem(KEY);
}

export class ApiError extends Error {
  constructor(status, document) {
    super(document.detail ?? document.title ?? `The host answered ${status}.`);
    this.status = status;
    this.code = document.code;
    this.errors = document.errors;
    this.requestId = document.requestId;
  }
}

/** Called when the host does not take the session any more. */
export const ended = { tell: () => undefined };

/** @returns the response, which is good. @throws ApiError */
export async function ask(method, path, { body, type, accept, headers, signal, token = session?.token } = {}) {
  const response = await fetch(path, {
    method,
    body,
    signal,
    credentials: 'omit',
    redirect: 'error',
    headers: {
      accept: accept ?? 'application/json',
      ...(type ? { 'content-type': type } : {}),
      ...(token ? { authorization: `Bearer ${token}` } : {}),
      ...headers,
    },
  }).catch((error) => {
    if (error.name === 'AbortError') throw error;
    throw new Error('The host cannot be reached. Try again in a moment.');
  });
  if (response.ok) return response;
  const failure = new ApiError(response.status, await response.json().catch(() => ({})));
  if (response.status === 401 && token && token === session?.token) ended.tell();
  throw failure;
}

export async function get(path, signal) {
  return (await ask('GET', path, { signal })).json();
}

export async function send(method, path, value) {
  const response = await ask(method, path, { body: JSON.stringify(value), type: 'application/json' });
  return response.status === 204 ? undefined : response.json();
}

/** The beginning of a value as text. */
export async function textOf(response) {
  const reader = response.body.getReader();
  const parts = [];
  let size = 0;
  let isWhole = false;
  while (size < MOST_TEXT) {
    const { done, value } = await reader.read();
    if (done) {
      isWhole = true;
      break;
    }
    parts.push(value);
    size += value.length;
  }
  if (!isWhole) await reader.cancel();
  const all = new Uint8Array(await new Blob(parts).arrayBuffer()).subarray(0, MOST_TEXT);
  const text = new TextDecoder().decode(all);
  return { text, isWhole, isText: !/[\0\uFFFD]/.test(text.slice(0, 2000)) };
}

/** Server-sent events, with the token in a header, which EventSource cannot send. It goes on where it was cut. */
export async function follow(path, signal, onEvent, onState) {
  let last;
  for (let wait = 500; !signal.aborted; wait = Math.min(wait * 2, 15_000)) {
    try {
      const headers = last === undefined ? {} : { 'last-event-id': last };
      const response = await ask('GET', path, { accept: 'text/event-stream', headers, signal });
      wait = 500;
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      let rest = '';
      for (let read = await reader.read(); !read.done; read = await reader.read()) {
        const events = (rest + read.value).split('\n\n');
        rest = events.pop();
        for (const event of events) {
          const id = /^id: (.*)$/m.exec(event)?.[1];
          const data = /^data: (.*)$/m.exec(event)?.[1];
          if (event === ': live') onState('Live.');
          if (id !== undefined) last = id;
          if (data !== undefined) onEvent(JSON.parse(data));
        }
      }
    } catch (error) {
      if (signal.aborted) return;
      if (error instanceof ApiError && error.status < 500) throw error;
    }
    onState('Interrupted; it is tried again.');
    await new Promise((resolve) => setTimeout(resolve, wait));
  }
}

/** A module that is loaded with its view. Its name is the host's version: a page that is older finds none. */
export const later = (module) =>
  module.catch(() => {
    throw new Error('This part of the console was not loaded. Load the page again: the host may have a new version.');
  });
