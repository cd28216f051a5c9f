import { Hono } from 'hono';

const app = new Hono();

app.get('/', (c) =>
  c.html(
    <html lang="en">
      <body>
        <h1>Hello, {c.req.query('name') ?? 'world'}</h1>
      </body>
    </html>,
  ),
);
app.get('/api/time', (c) => c.json({ now: new Date().toISOString() }));

export default app;
