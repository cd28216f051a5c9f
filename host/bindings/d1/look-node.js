/** Run by `workerd test` in a sandbox, on the copy of a database: says what the SQLite of the nodes finds in it. */
import { DurableObject } from 'cloudflare:workers';
import { look } from './look.ts';

export class Database extends DurableObject {
  look() {
    const { sql } = this.ctx.storage;
    const run = (text, onRow) => {
      for (const row of sql.exec(text).raw()) onRow?.(row);
    };
    look(run, say);
  }
}

export default {
  async test(_controller, env) {
    try {
      await env.DATABASES.get(env.DATABASES.idFromString(env.ID)).look();
    } catch (error) {
      say(['unreadable', String(error?.message ?? error)]);
    }
  },
};

function say(said) {
  console.log(JSON.stringify(said));
}
