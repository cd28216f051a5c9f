/**
 * What a binding is: everything that the host has to know of one, in one object. Each folder beside this file has one in
 * its `binding.ts`, and index.ts lists them. These files are also loaded by the command line: what serves a binding is
 * imported only where it is needed.
 */
import { z } from 'zod';
import type { Worker_Binding } from '../capnp/generated/workerd.cjs';
import type { Config } from '../shared/config.ts';
import type { MakeBindingServer } from './server.ts';
import type { MakeStoreKind } from './store-process/kind.ts';
import { STORE_ID } from './stores.ts';

export interface Binding {
  /** Its name in `{"bindings": {"kv": true}}` and in `--kv`, of its socket `kv.sock`, and of its service in workerd. */
  key: string;
  /** `STORE` for `env.STORE`: what it is called where a deployment gives it no name. Undefined: it always has one. */
  env?: string;
  /** What Cloudflare calls it, such as `KV`, where it has a counterpart there. */
  title?: string;
  /** A few words for help texts: `key-value storage`. */
  summary: string;
  /** What a deployment may ask for: {@link stores}, {@link named}, or another {@link byName}. */
  settings: z.ZodType;
  /** Limits that everybody may know, by their names in a deployment's metadata. */
  limits?(config: Config): Record<string, number>;
  /** Whether these settings lead to the deployment itself: nothing serves them. */
  within?(settings: Readonly<Record<string, unknown>>): boolean;
  /**
   * Set where it is, on several nodes, an object of the deployment's own workerd. This serves it to previews, which have
   * none of those objects.
   */
  serverForPreviews?(): Promise<MakeBindingServer>;
  /** What its settings lead to, where that is not a store named by `id`: equal ones share a socket. */
  idOf?(settings: Readonly<Record<string, unknown>>): string;
  /** The handler does not find it in env: the host uses it. */
  outsideEnv?: true;
  /** Why this host does not offer it; undefined where it does. A deploy that asks for it is refused before it is paid. */
  missing?(config: Pick<Config, 'ai'>): string | undefined;
  /** Whether these settings bind nothing, and only say something of what is there. */
  hidden?(settings: Readonly<Record<string, unknown>>): boolean;
  workerd: WorkerdBinding;
  /** The kind of store behind it, where the store process serves it. */
  store?(): Promise<MakeStoreKind>;
  /** What serves it, where the store process does not. */
  server?(): Promise<MakeBindingServer>;
  /** Whether these settings need that; default: all do. */
  isServed?(settings: Readonly<Record<string, unknown>>): boolean;
  /**
   * Name of the secret that holds the connection string of the database behind it. The egress process connects to that, on
   * a socket of the binding's own; the handler does not see the secret.
   */
  connectionSecret?(name: string): string;
  /** What it keeps on this disk by itself; the store process copies what it keeps. */
  data?: BindingData;
  /** Its owner may ask the instance of it, although the host keeps no data of it by itself. */
  asked?: true;
  /** Compatibility flags that the host does not support because of this binding -> what an owner is told. */
  unsupportedFlags?: Record<string, string>;
}

/** One binding of a deployment, as its configuration for workerd needs it. */
export interface WrittenBinding {
  /** In env. */
  name: string;
  /** Of its store. */
  id: string;
  /** Of the socket that it leads to, where something serves it. */
  service: string;
  /** As its schema has checked them. */
  settings: Readonly<Record<string, unknown>>;
  /** Where it names one. */
  connectionString?: string | undefined;
  /** The host is one of several nodes. */
  isClustered: boolean;
  version: {
    /** A UUID. */
    id: string;
    /** When it was deployed, ms. */
    at: number;
  };
}

/** How a worker gets the binding. */
export interface WorkerdBinding {
  /** Its socket takes bytes as they are, and no HTTP. */
  tcp?: true;
  /** Requests to the socket name the whole URL, which spares workerd taking it apart. The socket's server must accept that. */
  wholeUrls?: boolean;
  /** Its socket also takes calls of methods, for whoever asks for this name. */
  rpcHost?: string;
  /** Its socket is the edge's, which is told whose requests they are; the handler cannot say so itself. */
  saysWhoCalls?: true;
  /** Source of a module that wraps the service. The tenant's code cannot import it. */
  module?: { name: string; source(): string };
  /** Fills in everything but the name. */
  write(binding: Worker_Binding, written: WrittenBinding): void;
  /** The same for what its owner may do, and the handler may not. */
  writeControl?(binding: Worker_Binding, written: WrittenBinding): void;
}

export interface BindingData {
  /** Name of its stores' folders below each tenant's, as `storeName` completes it. */
  folder: string;
  /**
   * For backups: copies such a folder. @param socket of the binding, where its tenant runs. Without it the files are
   * copied while the tenant's processes stand still.
   */
  copy?(): Promise<(from: string, to: string, socket: string | undefined) => Promise<void>>;
  /** What a backup lacks because it is kept on another machine, in a sentence. */
  elsewhere?(config: Pick<Config, 'storage'>): string | undefined;
}

/** Bindings of one kind, at most. */
const MOST = 32;
/** What a binding may be called in env. */
export const ENV_NAME = /^[A-Za-z_$][\w$]{0,63}$/;
const name = z.string().regex(ENV_NAME, 'is an invalid name: use letters, digits, _ and $ (at most 64)');
const id = z
  .string()
  .regex(STORE_ID, 'is an invalid id: use letters, digits, _, - and . (at most 64)')
  .optional()
  .describe('finds the data again where the name changes; default: the name');

function names<Settings extends z.ZodType>(settings: Settings) {
  return z.record(name, settings).refine((all) => Object.keys(all).length <= MOST, `takes at most ${MOST} names`);
}

/** `true`: there is one, under its usual name. Else a name in env each -> its settings. */
function usualOrNamed<Settings extends z.ZodType>(settings: Settings) {
  const message = 'takes true or false, or names of your own, such as {"FIRST": {}, "SECOND": {}}';
  return z.union([z.boolean(), names(settings)], message);
}

/** For bindings without a usual name: a name in env each -> its settings. */
export function byName<Settings extends z.ZodType>(settings: Settings) {
  return z.union([z.literal(false), names(settings)], 'takes names of your own, with their settings');
}

/** For bindings to what is kept: `{"SESSIONS": {"id": "sessions"}}`. @param whyAlone why deployments cannot share it */
export function storesOfItsOwn(whyAlone: string) {
  return usualOrNamed(z.strictObject({ id, shared: z.literal(false, whyAlone).optional() }));
}

/** The same, for what deployments of one owner may share. */
export const stores = usualOrNamed(
  z
    .strictObject({
      id,
      shared: z
        .boolean()
        .optional()
        .describe("the owner's store of this id, for all deployments of the owner that say so, and not one of its own"),
    })
    .refine(({ id, shared }) => shared !== true || id !== undefined, {
      path: ['id'],
      message: 'is missing: deployments share a store by its id',
    }),
);
/** For all others: `{"PAY": {}}`. */
export const named = usualOrNamed(z.strictObject({}));
