/** The tenant of the soak: writes and reads one key with every binding, and says whether all of them work. */
export const HANDLER = `
export default {
  async fetch(request, env) {
    const url = new URL(request.url);
    const id = url.searchParams.get('id') ?? '';
    const kind = url.pathname.slice(1);
    if (kind === 'setup') {
      await env.DB.exec('CREATE TABLE kept (id TEXT PRIMARY KEY, version INTEGER, value TEXT)');
      await env.DB.exec('CREATE TABLE versions (id TEXT, version INTEGER)');
      return new Response('ready');
    }
    if (kind === 'here') return new Response('here');
    if (kind === 'neighbour') return fetch(url.searchParams.get('at'));
    if (kind === 'ready') {
      const [, , , neighbour] = await Promise.all([
        env.STORE.get('nothing'),
        env.BUCKET.head('nothing'),
        env.DB.prepare('SELECT 1').run(),
        fetch(url.searchParams.get('at')),
      ]);
      return new Response(await neighbour.text() === 'here' ? 'ready' : 'no neighbour', { status: neighbour.status });
    }
    if (kind === 'torn') {
      const halves = await env.DB.prepare('SELECT count(*) AS n FROM kept WHERE NOT EXISTS (SELECT 1 FROM versions '
        + 'WHERE versions.id = kept.id AND versions.version = kept.version)').first('n');
      return new Response(String(halves));
    }
    if (request.method === 'POST') {
      const value = await request.text();
      if (kind === 'kv') await env.STORE.put(id, value);
      else if (kind === 'r2') await env.BUCKET.put(id, value);
      else {
        const version = Number.parseInt(value, 10);
        await env.DB.batch([
          env.DB.prepare('INSERT OR REPLACE INTO kept (id, version, value) VALUES (?, ?, ?)').bind(id, version, value),
          env.DB.prepare('INSERT INTO versions (id, version) VALUES (?, ?)').bind(id, version),
        ]);
      }
      return new Response('kept');
    }
    if (kind === 'kv') return answer(await env.STORE.get(id));
    if (kind === 'r2') return answer(await (await env.BUCKET.get(id))?.text());
    return answer(await env.DB.prepare('SELECT value FROM kept WHERE id = ?').bind(id).first('value'));
  },
};
const answer = (value) => (value == null ? new Response('none', { status: 404 }) : new Response(value));
`;
