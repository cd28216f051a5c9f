/** Databases of handlers' own: stock clients on real servers over TLS, by connect() and by Hyperdrive, on the real host. */
import { once } from 'node:events';
import { type AddressInfo, createServer, type Server, type Socket } from 'node:net';
import { TLSSocket } from 'node:tls';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { bundleProject } from '../../host/runtime/bundle-project.ts';
import { deploy, jsonPost, mppFetch } from './support/callers.ts';
import {
  APP_PASSWORD,
  type Certificate,
  CertificateAuthority,
  clientsOf,
  type DatabaseServer,
  postgresPrograms,
  startMariadb,
  startPostgres,
} from './support/databases.ts';
import { startHost, type TestHost } from './support/host.ts';
import { available } from './support/programs.ts';
import { until } from './support/until.ts';

const FIXTURE = fileURLToPath(new URL('../fixtures/database-clients.js', import.meta.url));
const PASSWORD = encodeURIComponent(APP_PASSWORD);
const MOST = 6;

const authority = new CertificateAuthority();
const stranger = new CertificateAuthority();
let postgres: DatabaseServer;
let mariadb: DatabaseServer;
let host: TestHost;
let secrets: Record<string, string>;
let speaking: string;
const servers: Server[] = [];

const ask = async <Value = unknown>(what: object) => {
  const answer = await fetch(`${host.url}/clients/`, jsonPost(what));
  return (await answer.json()) as { value?: Value; error?: string };
};

/** A server that offers TLS as PostgreSQL does, with this certificate; over TLS it repeats what is said. */
async function offers({ key, cert }: Certificate): Promise<string> {
  return await listen((socket) => {
    socket.once('data', () => {
      socket.write('S');
      const secured = new TLSSocket(socket, { isServer: true, key, cert });
      secured.on('error', () => undefined).on('data', (bytes) => secured.write(`tls ${bytes}`));
    });
  });
}

/** A server that speaks TLS from the start, and repeats what is said. */
async function speaksTls({ key, cert }: Certificate): Promise<string> {
  return await listen((socket) => {
    const secured = new TLSSocket(socket, { isServer: true, key, cert });
    secured.on('error', () => undefined).on('data', (bytes) => secured.write(`tls ${bytes}`));
  });
}

async function listen(serve: (socket: Socket) => void): Promise<string> {
  const server = createServer((socket) => serve(socket.on('error', () => undefined)));
  servers.push(server);
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return `localhost:${(server.address() as AddressInfo).port}`;
}

beforeAll(async () => {
  if (!available('mariadbd', 'openssl') || !postgresPrograms()) return;
  [postgres, mariadb] = [await startPostgres(authority), await startMariadb(authority)];
  const bad = {
    other: await offers(authority.issue('other.test')),
    expired: await offers(authority.issue('localhost', -1)),
    foreign: await offers(stranger.issue('localhost')),
    injecting: await listen((socket) => socket.once('data', () => socket.write('Sand more'))),
    flooding: await listen((socket) => socket.once('data', () => socket.write(`N${'x'.repeat(2_000_000)}`))),
    huge: await listen((socket) => socket.write(Buffer.alloc(64, 0x7f))),
  };
  const pg = `localhost:${postgres.port}`;
  const my = `localhost:${mariadb.port}`;
  const at = (address: string, end = '') => `postgres://app:${PASSWORD}@${address}/app${end}`;
  secrets = {
    PG_CONNECTION_STRING: at(pg),
    MY_CONNECTION_STRING: `mysql://app:${PASSWORD}@${my}/app?ssl-mode=VERIFY_IDENTITY`,
    CLEAR_CONNECTION_STRING: at(pg, '?sslmode=disable'),
    NAMELESS_CONNECTION_STRING: at(`127.0.0.1:${postgres.port}`, '?sslmode=verify-ca'),
    WRONG_CONNECTION_STRING: `postgres://app:wrong-secret-1234@${pg}/app`,
    CLOSED_CONNECTION_STRING: at('10.1.2.3:5432'),
    OTHER_CONNECTION_STRING: at(bad.other),
    EXPIRED_CONNECTION_STRING: at(bad.expired),
    FOREIGN_CONNECTION_STRING: at(bad.foreign),
    TRUSTED_CONNECTION_STRING: at(bad.foreign, '?sslmode=require'),
    INJECTING_CONNECTION_STRING: at(bad.injecting),
    FLOODING_CONNECTION_STRING: at(bad.flooding),
    HUGE_CONNECTION_STRING: at(bad.huge, '?sslmode=disable'),
    MY_HUGE_CONNECTION_STRING: `mysql://app:${PASSWORD}@${bad.huge}/app`,
  };
  speaking = await speaksTls(authority.issue('localhost'));
  const opened = [pg, my, speaking, `127.0.0.1:${postgres.port}`, ...Object.values(bad)];
  host = await startHost({
    flags: {
      'runtime-egress-ca-file': authority.caFile,
      'runtime-egress-allow': JSON.stringify({ clients: opened }),
      'runtime-database-connections': `${MOST}`,
    },
  });
  const names = Object.keys(secrets).map((secret) => secret.replace('_CONNECTION_STRING', ''));
  await deploy(mppFetch(host.network, 0), host.url, {
    slug: 'clients',
    ...(await bundleProject(FIXTURE)),
    compatibilityDate: '2026-10-01',
    compatibilityFlags: ['nodejs_compat'],
    bindings: { hyperdrive: Object.fromEntries(names.map((name) => [name, {}])) },
    secrets,
  });
});

afterAll(async () => {
  await host?.stop();
  for (const server of servers) server.close();
  await Promise.all([postgres?.stop(), mariadb?.stop()]);
  authority.remove();
  stranger.remove();
});

describe.skipIf(!available('mariadbd', 'openssl') || !postgresPrograms())('databases', () => {
  test('env has an address on this machine, and nothing of the secret', async () => {
    const { value } = await ask<{ names: string[]; own: Record<string, unknown>; kinds: unknown[] }>({ do: 'env' });
    const name = value?.own.host;
    expect(name).toMatch(/^[0-9a-f]{32}\.hyperdrive\.local$/);
    expect(value?.own).toEqual({
      connectionString: `postgresql://app:hyperdrive@${name}:5432/app?sslmode=disable`,
      ...{ host: name, port: 5432, user: 'app', password: 'hyperdrive', database: 'app' },
    });
    expect(value?.kinds).toEqual(['function', 'function', 3306]);
    expect(value?.names.map((name) => `${name}_CONNECTION_STRING`)).toEqual(Object.keys(secrets).sort());
  });

  test('stock clients by Hyperdrive: the way to the server is TLS', async () => {
    const version = 'SELECT version FROM pg_stat_ssl WHERE pid = pg_backend_pid()';
    expect.soft(await ask({ do: 'pg', query: version })).toEqual({ value: [{ version: 'TLSv1.3' }] });
    expect.soft(await ask({ do: 'postgres', query: version })).toEqual({ value: [{ version: 'TLSv1.3' }] });
    expect.soft(await ask({ do: 'pg', query: 'SELECT $1::text AS a', values: ['ü'] })).toEqual({ value: [{ a: 'ü' }] });
    const cipher = "SHOW STATUS LIKE 'Ssl_version'";
    expect
      .soft(await ask({ do: 'mysql', query: cipher }))
      .toEqual({ value: [{ Variable_name: 'Ssl_version', Value: 'TLSv1.3' }] });
    expect.soft(await ask({ do: 'mysql', query: 'SELECT ? AS a', values: ['ü'] })).toEqual({ value: [{ a: 'ü' }] });
    expect
      .soft(await ask({ do: 'pg', binding: 'NAMELESS', query: version }))
      .toEqual({ value: [{ version: 'TLSv1.3' }] });
    expect.soft(await ask({ do: 'pg', binding: 'CLEAR', query: version })).toEqual({ value: [{ version: null }] });
  });

  test('stock clients by connect(), with TLS of their own asking', async () => {
    const url = secrets.PG_CONNECTION_STRING;
    const version = 'SELECT version FROM pg_stat_ssl WHERE pid = pg_backend_pid()';
    expect.soft(await ask({ do: 'pg', url, ssl: true, query: version })).toEqual({ value: [{ version: 'TLSv1.3' }] });
    expect
      .soft(await ask({ do: 'postgres', url, ssl: 'require', query: version }))
      .toEqual({ value: [{ version: 'TLSv1.3' }] });
    expect.soft(await ask({ do: 'pg', url, query: version })).toEqual({ value: [{ version: null }] });
    expect.soft(await ask({ do: 'on', to: speaking, say: 'hello' })).toEqual({ value: 'tls hello' });
    // workerd's node:tls refuses what mysql2 asks of it: with TLS it is for Hyperdrive.
    const direct = { host: 'localhost', port: mariadb.port, user: 'app', password: APP_PASSWORD, database: 'app' };
    expect.soft(await ask({ do: 'mysql', direct })).toEqual({ value: [{ one: 1 }] });
  });

  test('large results and statements come through whole', async () => {
    const rows = await ask<{ c: string }[]>({
      do: 'pg',
      query:
        "SELECT md5(string_agg(repeat('x', 1000), '')) AS a, length(repeat('y', 3000000)) AS b, repeat('y', 3000000) AS c FROM generate_series(1, 100)",
    });
    expect(rows.value?.[0]?.c.length).toBe(3_000_000);
    const sent = await ask({
      do: 'mysql',
      query: 'SELECT LENGTH(?) AS n, REPEAT("z", 2000000) AS c',
      values: ['x'.repeat(2_000_000)],
    });
    expect(sent).toEqual({ value: [{ n: 2_000_000, c: 'z'.repeat(2_000_000) }] });
  });

  test('a connection is used again, with nothing left of who had it before', async () => {
    const pid = (await ask({ do: 'untidy' })).value;
    const query =
      "SELECT pg_backend_pid() AS pid, current_setting('search_path') AS path, to_regclass('left_over') AS leftover, (SELECT count(*)::int FROM pg_prepared_statements WHERE name = 'p') AS prepared";
    // It is reset first, and who comes meanwhile has another one: as many come as there are.
    const look = async () => (await ask<{ pid: unknown }[]>({ do: 'pg', query })).value?.[0];
    const row = await until(async () => {
      const rows = await Promise.all(Array.from({ length: MOST }, look));
      return rows.find((found) => found?.pid === pid);
    });
    expect(row).toEqual({ pid, path: '"$user", public', leftover: null, prepared: 0 });
  });

  test('a connection of MySQL is used again after a leave, with nothing left of who had it before', async () => {
    const query = `SELECT CONNECTION_ID() AS id, @left AS word, @@sql_mode AS mode, @@character_set_client AS charset,
 (SELECT COUNT(*) FROM kept) AS kept`;
    const look = async () => (await ask<{ id: number }[]>({ do: 'mysql', query })).value?.[0];
    await ask({ do: 'untidyMysql', how: 'cut' });
    const { id: _, ...clean } = (await look()) ?? { id: 0 };
    expect(clean).toMatchObject({ word: null, charset: 'utf8mb4', kept: 0 });
    // It writes the same row: whoever held a transaction open would be waited for.
    const id = (await ask<number>({ do: 'untidyMysql', how: 'end' })).value;
    // It is logged in anew first, and who comes meanwhile has another one: as many come as there are.
    const row = await until(async () => {
      const rows = await Promise.all(Array.from({ length: MOST }, look));
      return rows.find((found) => found?.id === id);
    });
    expect(row).toEqual({ id, ...clean });
    const leftOver = await ask({ do: 'mysql', query: 'SELECT * FROM left_over' });
    expect(leftOver.error).toMatch(/left_over' doesn't exist/);
    // Nobody gets a connection whose last client did not wait for its answers.
    for (const how of ['cut', 'busy']) {
      const gone = (await ask<number>({ do: 'untidyMysql', how })).value;
      for (let turn = 0; turn < 5; turn++) expect((await look())?.id).not.toBe(gone);
    }
    // Many at once, each with its own answers.
    const answers = await Promise.all(
      Array.from({ length: 30 }, (_, index) => ask({ do: 'mysql', query: 'SELECT ? AS a', values: [`${index}`] })),
    );
    expect(answers.filter(({ value }) => value).map(({ value }) => value)).toEqual(
      answers.flatMap(({ value }, index) => (value ? [[{ a: `${index}` }]] : [])),
    );
    expect(answers.filter(({ value }) => value).length).toBeGreaterThan(20);
  });

  test('who is not proved to be the database is refused, with the reason', async () => {
    const tried = async (binding: string) => (await ask({ do: 'pg', binding: binding })).error;
    expect.soft(await tried('OTHER')).toMatch(/its certificate is for another name than localhost\. 08006$/);
    expect.soft(await tried('EXPIRED')).toMatch(/its certificate has expired/);
    expect.soft(await tried('FOREIGN')).toMatch(/an authority that this host does not trust/);
    expect.soft(await tried('TRUSTED')).toMatch(/no PostgreSQL server|closed the connection/);
    expect.soft(await tried('INJECTING')).toMatch(/sent data before TLS was established/);
    expect.soft(await tried('FLOODING')).toMatch(/does not offer TLS/);
    expect.soft(await tried('HUGE')).toMatch(/no PostgreSQL server/);
    expect.soft(await tried('CLOSED')).toMatch(/10\.1\.2\.3:5432 may not be reached from here: its address is private/);
    expect.soft(await tried('WRONG')).toMatch(/password authentication failed for user "app" 28P01/);
    expect.soft((await ask({ do: 'mysql', binding: 'MY_HUGE' })).error).toMatch(/no MySQL server/);
    const direct = async (name: string, more = {}) => {
      const to = /@([^/]+)\//.exec(secrets[`${name}_CONNECTION_STRING`] ?? '')?.[1];
      return await ask({ do: 'starttls', to, ...more });
    };
    expect.soft((await direct('OTHER')).error).toMatch(/its certificate is for another name than localhost/);
    expect.soft((await direct('EXPIRED')).error).toMatch(/its certificate has expired/);
    expect.soft((await direct('FOREIGN')).error).toMatch(/an authority that this host does not trust/);
    expect.soft((await direct('INJECTING')).error).toMatch(/sent data before TLS was established/);
    expect.soft((await direct('CLOSED')).error).toMatch(/may not be reached from here/);
    expect
      .soft(await direct('OTHER', { name: 'other.test', say: 'hello' }))
      .toEqual({ value: { first: 'S', answer: 'tls hello' } });
  });

  test('a tenant has so many connections at a time, and has them back', async () => {
    const { value } = await ask<{ more: string }>({ do: 'hold', count: MOST });
    expect(value?.more).toMatch(/timeout|terminated/);
    expect(clientsOf(postgres)).toBe(MOST);
    // A request that ends with connections open gives them back, too.
    for (let turn = 0; turn < MOST + 1; turn++) expect((await ask({ do: 'abandon' })).value).toBe('left');
    expect((await ask({ do: 'pg' })).value).toEqual([{ one: 1 }]);
  });

  test('a secret shows up nowhere', async () => {
    const logs = await mppFetch(host.network, 0)(`${host.url}/_admin/clients/logs?limit=1000`);
    const metadata = await fetch(`${host.url}/_admin/get/clients`);
    for (const text of [await logs.text(), await metadata.text(), host.output()]) {
      for (const hidden of [PASSWORD, APP_PASSWORD, 'wrong-secret-1234']) expect(text).not.toContain(hidden);
    }
  });

  test('a deployment without the secret, or with a wrong one, is refused before it is paid', async () => {
    const send = async (more: object) => {
      const body = {
        slug: 'other',
        code: 'export default { fetch() {} }',
        bindings: { hyperdrive: { DB: {} } },
        ...more,
      };
      return await (await mppFetch(host.network, 0)(`${host.url}/_admin/deploy`, jsonPost(body))).text();
    };
    expect.soft(await send({})).toContain('has no DB_CONNECTION_STRING, which holds the connection string of env.DB');
    const wrong = await send({ secrets: { DB_CONNECTION_STRING: 'postgres://u:hidden-word@h/d?sslmode=prefer' } });
    expect.soft(wrong).toContain('/secrets/DB_CONNECTION_STRING');
    expect.soft(wrong).not.toContain('hidden-word');
  });

  test('with the deployment, all its connections end', async () => {
    expect(clientsOf(postgres)).toBeGreaterThan(0);
    const deleted = await mppFetch(host.network, 0)(`${host.url}/_admin/clients`, { method: 'DELETE' });
    expect(deleted.status).toBe(200);
    await until(() => (clientsOf(postgres) === 0 ? true : undefined));
  });
});
