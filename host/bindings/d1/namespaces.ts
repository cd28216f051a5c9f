/** Namespaces of a libSQL server: one for each database, made and removed through the server's admin API. */
import { createHash } from 'node:crypto';
import { Problem } from '../../shared/problem.ts';
import { FOLDER } from './files.ts';

export interface NamespaceServer {
  /** Base URL of the admin API, such as `http://127.0.0.1:8081`. */
  adminUrl: string;
  /** Sent as a bearer token when not empty: for a proxy in front of the admin API. */
  adminToken: string;
}

/** @param name of the database's folder: `sql`, `sql.orders` */
export function namespaceOf(tenant: string, name: string): string {
  const id = name.slice(FOLDER.length + 1);
  if (id === '') return tenant;
  // Ids may have characters that a namespace may not have.
  return `${tenant}-${createHash('sha256').update(id).digest('hex').slice(0, 16)}`;
}

/** Makes the tenant's namespace with its quota, or sets the quota of one that exists. Idempotent. */
export async function ensureNamespace(server: NamespaceServer, namespace: string, quotaBytes: number): Promise<void> {
  const settings = { max_db_size: String(quotaBytes) };
  const created = await call(server, 'POST', `${encodeURIComponent(namespace)}/create`, settings);
  if (created.status === 200 || created.status === 201) return;
  const config = await call(server, 'GET', `${encodeURIComponent(namespace)}/config`);
  if (config.status !== 200) throw refused('make', created.status);
  const current = JSON.parse(config.text) as Record<string, unknown>;
  const changed = await call(server, 'POST', `${encodeURIComponent(namespace)}/config`, { ...current, ...settings });
  if (changed.status !== 200) throw refused('set the quota of', changed.status);
}

/** Removes the namespace with all its data. Idempotent. */
export async function removeNamespace(server: NamespaceServer, namespace: string): Promise<void> {
  const { status } = await call(server, 'DELETE', encodeURIComponent(namespace));
  if (status !== 200 && status !== 404) throw refused('remove', status);
}

async function call(
  server: NamespaceServer,
  method: string,
  path: string,
  body?: object,
): Promise<{ status: number; text: string }> {
  try {
    const response = await fetch(`${server.adminUrl.replace(/\/$/, '')}/v1/namespaces/${path}`, {
      method,
      headers: {
        ...(body === undefined ? {} : { 'content-type': 'application/json' }),
        ...(server.adminToken === '' ? {} : { authorization: `Bearer ${server.adminToken}` }),
      },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
      signal: AbortSignal.timeout(10_000),
    });
    return { status: response.status, text: await response.text() };
  } catch (error) {
    throw new Problem('not_ready', 'The SQL server cannot be reached; check storage.sqlAdmin and the server.', {
      cause: error,
    });
  }
}

function refused(what: string, status: number): Problem {
  return new Problem('internal', `The SQL server refused to ${what} a namespace (${status}).`);
}
