/**
 * The script of the demo page: three buttons, a player, the answer, and what it cost.
 * Bundled into src/pages/demo-client.txt by build-demo.ts; the tenant serves it as /demo.js.
 */
import { payingFetch } from './pay.ts';

function element<Kind extends Element>(selector: string): Kind {
  const found = document.querySelector<Kind>(selector);
  if (found === null) throw new Error(`no ${selector} on this page`);
  return found;
}

const script = element<HTMLScriptElement>('script[data-configuration]');
const { key } = JSON.parse(script.dataset.configuration ?? '{}') as { key: `0x${string}` };
const pay = payingFetch(key);
const base = script.src.replace(/demo\.js$/, '');

const text = element<HTMLTextAreaElement>('#text');
const address = element<HTMLInputElement>('#url');
const player = element<HTMLAudioElement>('#player');
const cost = element<HTMLElement>('#cost');
const answer = element<HTMLElement>('#answer');

async function post(path: string, body: object): Promise<Response | undefined> {
  cost.textContent = 'Paying and working …';
  answer.textContent = '';
  try {
    const response = await pay(`${base}${path}`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', 'idempotency-key': crypto.randomUUID() },
      body: JSON.stringify(body),
    });
    if (response.ok) return response;
    cost.textContent = 'Cost: nothing.';
    answer.textContent = await response.text();
  } catch (error) {
    cost.textContent = 'Cost: nothing.';
    answer.textContent = error instanceof Error ? error.message : String(error);
  }
  return undefined;
}

function showCost(response: Response): void {
  const paid = response.headers.get('x-payment-amount');
  cost.textContent = paid === null ? 'Cost: not told.' : `Cost: ${paid} USDC of play money.`;
}

element<HTMLButtonElement>('#speak').addEventListener('click', async () => {
  const response = await post('v1/speak', { text: text.value });
  if (response === undefined) return;
  const audio = await response.blob();
  if (player.src !== '') URL.revokeObjectURL(player.src);
  player.src = URL.createObjectURL(audio);
  showCost(response);
  answer.textContent = `${audio.type}, ${audio.size} bytes, ${response.headers.get('dg-model-name')}`;
  await player.play().catch(() => undefined);
});

element<HTMLButtonElement>('#read').addEventListener('click', async () => {
  const response = await post('v1/read?summarize=true&topics=true&intents=true&sentiment=true', { text: text.value });
  if (response === undefined) return;
  showCost(response);
  answer.textContent = JSON.stringify(await response.json(), null, 2);
});

element<HTMLButtonElement>('#listen').addEventListener('click', async () => {
  const response = await post('v1/listen?utterances=true', { url: address.value });
  if (response === undefined) return;
  showCost(response);
  answer.textContent = JSON.stringify(await response.json(), null, 2);
});
