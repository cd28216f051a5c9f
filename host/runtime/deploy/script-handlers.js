/**
 * Makes a module of a script in the syntax of service workers: runs in the tenant's isolate, before the script. What the
 * script adds as listeners becomes the default export's handlers, and what it is bound to becomes global.
 * https://developers.cloudflare.com/workers/reference/migrate-to-module-workers/
 */
import { env } from 'cloudflare:workers';

const handlers = {};
export default handlers;

for (const name of Object.keys(env)) globalThis[name] = env[name];

/** Type of event -> its listeners. */
const listeners = { fetch: [], scheduled: [], queue: [] };
const listen = globalThis.addEventListener;
globalThis.addEventListener = (type, listener, options) => {
  if (!Object.hasOwn(listeners, type)) return listen.call(globalThis, type, listener, options);
  listeners[type].push(typeof listener === 'function' ? listener : (event) => listener.handleEvent(event));
  handlers[type] = type === 'fetch' ? answer : work;
};

class HandlerEvent extends Event {
  #context;
  pending = [];
  constructor(type, context, members) {
    super(type);
    this.#context = context;
    // Named like those of Event itself, such as `type` of a scheduled one.
    for (const name of Object.keys(members)) if (!(name in this)) this[name] = members[name];
  }
  waitUntil(promise) {
    this.pending.push(promise);
    this.#context.waitUntil(promise);
  }
}

class FetchedEvent extends HandlerEvent {
  answer;
  #context;
  constructor(request, context) {
    super('fetch', context, { request });
    this.#context = context;
  }
  respondWith(answer) {
    if (this.answer) throw new DOMException('respondWith() was called already.', 'InvalidStateError');
    this.answer = Promise.resolve(answer);
    this.stopImmediatePropagation();
  }
  passThroughOnException() {
    this.#context.passThroughOnException();
  }
}

function answer(request, _env, context) {
  const event = new FetchedEvent(request, context);
  for (const listener of listeners.fetch) {
    listener.call(globalThis, event);
    if (event.answer) return event.answer;
  }
  throw new TypeError('No listener called event.respondWith().');
}

async function work(controller, _env, context) {
  const { cron, scheduledTime, queue, messages } = controller;
  const members = queue === undefined ? { cron, scheduledTime } : { queue, messages };
  const event = new HandlerEvent(queue === undefined ? 'scheduled' : 'queue', context, members);
  event.noRetry = () => controller.noRetry?.();
  event.ackAll = () => controller.ackAll?.();
  event.retryAll = (options) => controller.retryAll?.(options);
  for (const listener of listeners[event.type]) listener.call(globalThis, event);
  await Promise.all(event.pending);
}
