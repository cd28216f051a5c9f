/**
 * Services: what the host is composed of. Each names the services that it needs, so the order of the start is never
 * written down: a service starts as soon as all that it needs has started, and stops before any of them stops.
 */
import type { Logger } from 'pino';

export interface Service<T> {
  readonly name: string;
  readonly needs: Needs;
  /** @param values of the needs, by the same names */
  start(values: Record<string, unknown>): T | Promise<T>;
  stop?(value: T): unknown;
}

// biome-ignore lint/suspicious/noExplicitAny: needs of every type; Values has each one's own.
type Needs = Record<string, Service<any>>;

type Values<N extends Needs> = { [Name in keyof N]: N[Name] extends Service<infer T> ? T : never };

interface Definition<T, N extends Needs> {
  /** For the log. */
  name: string;
  needs: N;
  start(values: Values<N>): T | Promise<T>;
  /** Runs when everything that needs this service has stopped. */
  stop?(value: T): unknown;
}

export function service<T, N extends Needs>(definition: Definition<T, N>): Service<T> {
  return definition as unknown as Service<T>;
}

/** A value that exists before the start. `startServices` gets it. */
export function given<T>(name: string): Service<T> {
  return service({
    name,
    needs: {},
    start(): T {
      throw new Error(`${name} was not given`);
    },
  });
}

export type Given = readonly [Service<unknown>, unknown];

/** @returns what `startServices` takes for a service made by `given` */
export function give<T>(what: Service<T>, value: T): Given {
  return [what as Service<unknown>, value];
}

export interface Started<T> {
  value: T;
  /** Stops one service after the other, the last one that started first. Never rejects. */
  stop(): Promise<void>;
}

/**
 * Starts a service and all that it needs.
 * @throws what the first start that failed threw; by then, all that had started is stopped again
 */
export async function startServices<T>(root: Service<T>, givens: readonly Given[], log: Logger): Promise<Started<T>> {
  const running = new Map<Service<unknown>, Promise<unknown>>(
    givens.map(([what, value]) => [what, Promise.resolve(value)]),
  );
  /** Newest first. */
  const started: { name: string; stop(): unknown }[] = [];
  let failure: { error: unknown } | undefined;

  function run(one: Service<unknown>): Promise<unknown> {
    let value = running.get(one);
    if (!value) {
      value = begin(one);
      // Whoever needs it sees the error; it is not unhandled while they still wait for something else.
      value.catch(() => undefined);
      running.set(one, value);
    }
    return value;
  }

  async function begin(one: Service<unknown>): Promise<unknown> {
    const names = Object.keys(one.needs);
    const values = await Promise.all(Object.values(one.needs).map(run));
    if (failure) throw failure.error;
    const startedAt = performance.now();
    try {
      const value = await one.start(Object.fromEntries(names.map((name, index) => [name, values[index]])));
      log.debug({ service: one.name, ms: Math.round(performance.now() - startedAt) }, 'started');
      if (one.stop) started.unshift({ name: one.name, stop: () => one.stop?.(value) });
      return value;
    } catch (error) {
      failure ??= { error };
      throw failure.error;
    }
  }

  async function stop(): Promise<void> {
    for (const one of started.splice(0)) {
      const startedAt = performance.now();
      try {
        await one.stop();
        log.debug({ service: one.name, ms: Math.round(performance.now() - startedAt) }, 'stopped');
      } catch (error) {
        log.error({ err: error, service: one.name }, 'a service did not stop cleanly');
      }
    }
  }

  try {
    return { value: (await run(root as Service<unknown>)) as T, stop };
  } catch (error) {
    // What is starting just now is stopped as well.
    await Promise.allSettled(running.values());
    await stop();
    throw error;
  }
}
