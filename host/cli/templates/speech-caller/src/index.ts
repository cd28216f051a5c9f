/** Asks the speech service of a host what it says about a text. `/v1/read` costs: its 402 is handed on to the caller, who pays. */
export default {
  async fetch(request: Request, env: { SPEECH_URL: string }): Promise<Response> {
    if (request.method !== 'POST') return new Response('POST a text: its summary and topics are what comes back.\n');
    const headers = new Headers({ 'content-type': 'application/json' });
    for (const name of ['authorization', 'payment-signature', 'x-payment']) {
      const value = request.headers.get(name);
      if (value !== null) headers.set(name, value);
    }
    return fetch(`${env.SPEECH_URL}/v1/read?summarize=true&topics=true&language=en`, {
      method: 'POST',
      headers,
      body: JSON.stringify({ text: await request.text() }),
    });
  },
};
