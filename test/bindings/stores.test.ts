import { expect, it } from 'vitest';
import { bindingSet, boundBindings, distinctServices } from '../../host/bindings/index.ts';
import { kindOfStore, objectPlace, serviceName, storeName, storesOf } from '../../host/bindings/stores.ts';

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
