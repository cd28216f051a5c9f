/** Serves a tenant's database that lives on a libSQL server: the same protocol on the same socket, no SQL engine here. */
import { unlinkSync } from 'node:fs';
import { createServer } from 'node:net';
import { BACKLOG } from '../../shared/backlog.ts';
import { Bookmarks } from './bookmark.ts';
import { MESSAGES, SqlFailure } from './failure.ts';
import { answer, type SqlRequest, sqlConnections } from './http.ts';
import { ensureNamespace } from './namespaces.ts';
import { failureText, successText } from './protocol.ts';
import { RemoteStore } from './remote-store.ts';
import type { RemoteSettings, SqlSettings } from './settings.ts';

/** How long queries under way may go on at the end, ms. */
const CLOSE_GRACE_MS = 30_000;

/** Makes the namespace where an admin API is given, then listens as the settings say; answers the function that stops it. */
export async function serveRemote(
  settings: SqlSettings,
  remote: RemoteSettings,
  listening: () => void,
): Promise<() => void> {
  const { adminUrl = '', adminToken = '', namespace } = remote;
  if (adminUrl !== '') await ensureNamespace({ adminUrl, adminToken }, namespace, settings.quotaBytes);
  const store = new RemoteStore(remote, settings);
  const bookmarks = new Bookmarks(0, Date.now);

  const reply = async ({ queries, format, inSession, call }: SqlRequest): Promise<void> => {
    let text: string;
    let bookmark: string | undefined;
    try {
      text = successText(await store.run(queries), format);
      if (inSession) bookmark = bookmarks.next();
    } catch (error) {
      if (!(error instanceof SqlFailure)) {
        process.stderr.write(`${JSON.stringify({ level: 'error', event: 'remote', message: String(error) })}\n`);
      }
      text = failureText(error instanceof SqlFailure ? error.message : MESSAGES.unreachable);
    }
    answer(call, 200, text, bookmark);
  };

  const connections = sqlConnections({
    received: () => undefined,
    finished: () => undefined,
    query: (request) => void reply(request),
    // The server has backups of its own.
    backup: () => '{"success":true}',
  });
  const server = createServer({ pauseOnConnect: true }, (socket) => void connections.adopt(socket));
  if (typeof settings.listen === 'number') {
    server.listen({ fd: settings.listen, backlog: BACKLOG }, listening);
  } else {
    try {
      unlinkSync(settings.listen);
    } catch {
      // It was not there.
    }
    server.listen({ path: settings.listen, backlog: BACKLOG }, listening);
  }
  return () => {
    server.close();
    void connections.close(CLOSE_GRACE_MS).then(() => process.exit(0));
  };
}
