import { drizzle } from 'drizzle-orm/d1';
import { integer, sqliteTable, text } from 'drizzle-orm/sqlite-core';

const notes = sqliteTable('notes', {
  id: integer('id').primaryKey(),
  text: text('text').notNull(),
});

/** Make the table first: turnpike d1 migrations apply */
export default {
  async fetch(request: Request, env: { DB: D1Database }): Promise<Response> {
    const db = drizzle(env.DB);
    if (request.method === 'POST')
      return Response.json(
        await db
          .insert(notes)
          .values({ text: await request.text() })
          .returning(),
        { status: 201 },
      );
    return Response.json(await db.select().from(notes));
  },
};
