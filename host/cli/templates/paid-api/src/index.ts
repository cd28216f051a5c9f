/** `POST /count` costs 0.01 USD (turnpike.json): the host takes the payment before this runs, and none if it fails. */
export default {
  async fetch(request: Request): Promise<Response> {
    if (new URL(request.url).pathname !== '/count') return new Response('POST a text to /count. It costs 0.01 USD.\n');
    const text = await request.text();
    return Response.json({ words: text.split(/\s+/).filter(Boolean).length, paidBy: request.headers.get('x-payer') });
  },
};
