import { expect, it } from 'vitest';
import { bindingSet, boundBindings, distinctServices } from '../../host/bindings/index.ts';
import {
  kindOfStore,
  objectPlace,
  serviceName,
  sharedSpace,
  sharedStores,
  storeName,
  storesOf,
} from '../../host/bindings/stores.ts';

const bound = (asked: Record<string, unknown>) =>
  boundBindings(bindingSet(asked)).map(({ binding, name, id }) => `${binding.key} ${name} ${id}`);

it('a binding without a name has its usual name and the default store', () => {
  expect(bound({ kv: true, d1: {}, r2: false })).toEqual(['kv STORE default', 'd1 DB default']);
});

it('the usual name leads to the default store, whether it is given or not', () => {
  expect(bound({ kv: { STORE: {}, CACHE: {} } })).toEqual(['kv STORE default', 'kv CACHE CACHE']);
});

it('an id finds the store where the name changes', () => {
  expect(bound({ kv: { NEW_NAME: { id: 'default' }, B: { id: 'CACHE' } } })).toEqual([
    'kv NEW_NAME default',
    'kv B CACHE',
  ]);
});

it('two names of one store share its service', () => {
  const all = boundBindings(bindingSet({ kv: { A: { id: 'x' }, B: { id: 'x' }, C: {} } }));
  expect(all[0]?.service).toBe(all[1]?.service);
  expect(distinctServices(all).map(({ id }) => id)).toEqual(['x', 'C']);
});

it('stores of a kind are told apart from those of another whose name begins alike', () => {
  expect(storeName('kv', 'default')).toBe('kv');
  expect(storeName('kv', 'sessions.2')).toBe('kv.sessions.2');
  expect(kindOfStore('kv.sessions.2')).toBe('kv');
  expect(storesOf('kv', ['kv', 'kv.a', 'kvx', 'd1', 'd1.kv'])).toEqual(['kv', 'kv.a']);
});

it('sockets of stores have short names, however long the ids are', () => {
  const service = serviceName('payments', 'x'.repeat(64));
  expect(service).toMatch(/^payments\.[\w-]{6}$/);
  expect(serviceName('kv', 'a')).not.toBe(serviceName('kv', 'b'));
});

it('objects of one store are not below those of another', () => {
  const places = [objectPlace('t1', 'r2'), objectPlace('t1', 'r2.a'), objectPlace('t1', 'r2.a.b')];
  expect(places).toEqual(['t1', 't1.a', 't1.a.b']);
  for (const place of places) expect(places.some((other) => other.startsWith(`${place}/`))).toBe(false);
});

it('what an owner shares is kept in a name that no tenant has, each owner’s own', () => {
  const one = sharedSpace(`0x${'a'.repeat(40)}`);
  expect(one).toMatch(/^shared-[0-9a-f]{40}$/);
  expect(one).not.toBe(sharedSpace(`0x${'b'.repeat(40)}`));
  for (const wrong of ['', '0xA', '../x', `0x${'A'.repeat(40)}`, `0x${'a'.repeat(41)}`])
    expect(() => sharedSpace(wrong)).toThrow(TypeError);
});

it('shared stores and those of a deployment’s own have different services, also by one id', () => {
  const set = bindingSet({
    kv: {
      A: { id: 'x', shared: true },
      B: { id: 'x' },
      C: { id: 'x', shared: true },
      D: { id: 'default', shared: true },
    },
    r2: { E: { id: 'x', shared: true }, F: { id: 'y', shared: false } },
  });
  const services = boundBindings(set).map(({ service }) => service);
  expect(services[0]).toBe(services[2]);
  expect(new Set(services).size).toBe(5);
  expect(services[3]).not.toBe('kv');
  expect(sharedStores(set)).toEqual(['kv.x', 'kv', 'r2.x']);
});
