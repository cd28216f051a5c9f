import { Message } from 'capnp-ts';
import { describe, expect, it } from 'vitest';
import {
  Config,
  HttpOptions_Style,
  type Worker_Binding,
  Worker_Binding_Which,
} from '../../host/capnp/generated/workerd.cjs';
import { encodeConfig } from '../../host/runtime/config.ts';
import type { InstanceSpec } from '../../host/shared/contracts.ts';

const NONE = { kv: false, d1: false, r2: false, payments: false };

function spec(over: Partial<InstanceSpec> = {}): InstanceSpec {
  return {
    slug: 'hello',
    tenant: 't00000000000000000001',
    revision: '1',
    bundle: {
      modules: [{ name: 'index.js', type: 'esModule', body: new TextEncoder().encode('export default {}') }],
      sourceMap: undefined,
    },
    compatibilityDate: '2026-10-01',
    compatibilityFlags: [],
    vars: {},
    secrets: {},
    bindings: NONE,
    crons: [],
    egressAllow: [],
    ...over,
  };
}

function decode(value: InstanceSpec) {
  const bytes = encodeConfig(value, { listen: '/run/listen', services: '/run/services' }, 128);
  const config = new Message(bytes, false).getRoot(Config);
  const services = config.getServices().toArray();
  const main = services.find((service) => service.getName() === 'main')!.getWorker();
  return { config, services, main, bindings: main.getBindings().toArray() };
}

const names = (bindings: Worker_Binding[]) => bindings.map((binding) => binding.getName());

describe('encodeConfig', () => {
  it('gives a deployment without bindings the way out and nothing else', () => {
    const { services, bindings, config } = decode(spec());
    expect(services.map((service) => service.getName())).toEqual(['main', 'system', 'internet']);
    expect(bindings).toEqual([]);
    const egress = services[2]!.getExternal();
    expect(egress.getAddress()).toBe('unix:/run/services/egress.sock');
    expect(egress.getHttp().getStyle()).toBe(HttpOptions_Style.PROXY);
    expect(
      config
        .getSockets()
        .toArray()
        .map((socket) => [socket.getName(), socket.getAddress(), socket.getService().getName()]),
    ).toEqual([
      ['http', 'unix:/run/listen/http.sock', 'main'],
      ['system', 'unix:/run/listen/system.sock', 'system'],
      ['e0', 'unix:/run/listen/e0.sock', 'main'],
    ]);
  });

  it('takes whole URLs, and request.cf from a header, on the public socket only', () => {
    const [http, system] = decode(spec()).config.getSockets().toArray();
    expect(http!.getHttp().getCfBlobHeader()).toBe('x-turnpike-cf');
    expect(http!.getHttp().getStyle()).toBe(HttpOptions_Style.PROXY);
    expect(system!.getHttp().getCfBlobHeader()).toBe('');
    expect(system!.getHttp().getStyle()).toBe(HttpOptions_Style.HOST);
  });

  it('binds what was asked for to its own socket', () => {
    const { services, bindings } = decode(spec({ bindings: { kv: true, d1: true, r2: true, payments: true } }));
    expect(names(bindings)).toEqual(['STORE', 'DB', 'BUCKET', 'PAYMENTS']);
    expect(services.slice(3).map((service) => service.getExternal().getAddress())).toEqual(
      ['kv', 'd1', 'r2', 'payments'].map((name) => `unix:/run/services/${name}.sock`),
    );
    const bucket = bindings[2]!.getWrapped();
    expect(names(bucket.getInnerBindings().toArray())).toEqual(['bucket', 'store']);
    const database = bindings[1]!.getWrapped();
    expect(database.getModuleName()).toBe('cloudflare-internal:d1-api');
    expect(names(database.getInnerBindings().toArray())).toEqual(['fetcher']);
  });

  it('binds several of a kind by their names, and one store once', () => {
    const kv = { CACHE: {}, SESSIONS: { id: 's' }, OLD_NAME: { id: 's' }, STORE: {} };
    const { services, bindings } = decode(spec({ bindings: { ...NONE, kv, d1: { A: {}, B: {} } } }));
    expect(names(bindings)).toEqual(['CACHE', 'SESSIONS', 'OLD_NAME', 'STORE', 'A', 'B']);
    const addresses = services.slice(3).map((service) => service.getExternal().getAddress());
    expect(new Set(addresses).size).toBe(5);
    expect(addresses).toContain('unix:/run/services/kv.sock');
    const target = (index: number) => bindings[index]!.getKvNamespace().getName();
    expect(target(1)).toBe(target(2));
    expect(target(0)).not.toBe(target(1));
  });

  it('gives a cache to code that asks for one, and to no other', () => {
    const code = (text: string) =>
      decode(
        spec({
          bundle: {
            modules: [{ name: 'index.js', type: 'esModule', body: new TextEncoder().encode(text) }],
            sourceMap: undefined,
          },
        }),
      );
    expect(code('caches.default').services.map((service) => service.getName())).toContain('cache');
    expect(code('caches.default').main.getCacheApiOutbound().getName()).toBe('cache');
    expect(code('export default {}').services.map((service) => service.getName())).not.toContain('cache');
  });

  it('gives vars as text or JSON', () => {
    const { bindings } = decode(spec({ vars: { NAME: 'a "b"\n', LIST: [1, { a: null }], YES: true } }));
    expect(names(bindings)).toEqual(['NAME', 'LIST', 'YES']);
    expect(bindings[0]!.getText()).toBe('a "b"\n');
    expect(bindings.slice(1).map((binding) => JSON.parse(binding.getJson()))).toEqual([[1, { a: null }], true]);
  });

  it('adds the module of a bucket, which handlers cannot import, where there is one', () => {
    const extensions = (r2: boolean) =>
      decode(spec({ bindings: { ...NONE, r2 } }))
        .config.getExtensions()
        .toArray();
    expect(extensions(false)).toEqual([]);
    const [module] = extensions(true).flatMap((extension) => extension.getModules().toArray());
    expect([module!.getName(), module!.getInternal()]).toEqual(['turnpike-internal:bucket', true]);
  });

  it('keeps secrets as values, whatever is in them', () => {
    const value = '"); (name = "evil", service = "system") \u{1F511}\n';
    const { bindings } = decode(spec({ secrets: { KEY: value } }));
    expect(bindings[0]!.which()).toBe(Worker_Binding_Which.TEXT);
    expect(bindings[0]!.getText()).toBe(value);
  });

  it('carries modules of every type, byte for byte', () => {
    const bytes = Uint8Array.from({ length: 300 }, (_, index) => index % 256);
    const { main } = decode(
      spec({
        bundle: {
          modules: [
            { name: 'index.js', type: 'esModule', body: new TextEncoder().encode('// ü') },
            { name: 'a.wasm', type: 'wasm', body: bytes },
            { name: 'b.bin', type: 'data', body: bytes },
            { name: 'c.txt', type: 'text', body: new TextEncoder().encode('text') },
            { name: 'd.json', type: 'json', body: new TextEncoder().encode('{}') },
          ],
          sourceMap: undefined,
        },
      }),
    );
    const [code, wasm, data, text, json] = main.getModules().toArray();
    expect(code!.getEsModule()).toBe('// ü');
    expect(Buffer.from(wasm!.getWasm().toUint8Array())).toEqual(Buffer.from(bytes));
    expect(Buffer.from(data!.getData().toUint8Array())).toEqual(Buffer.from(bytes));
    expect([text!.getText(), json!.getJson()]).toEqual(['text', '{}']);
  });

  it('holds ten megabytes', () => {
    const body = new TextEncoder().encode(`//${'x'.repeat(10_000_000)}`);
    const { main } = decode(
      spec({ bundle: { modules: [{ name: 'index.js', type: 'esModule', body }], sourceMap: undefined } }),
    );
    expect(main.getModules().get(0).getEsModule().length).toBe(10_000_002);
  });
});
