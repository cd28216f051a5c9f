/**
 * The script of the demo page: three buttons, a player, the answer, and what it cost.
 * Bundled into src/pages/demo-client.txt by build-demo.ts; the tenant serves it as /demo.js.
 */
import { payingFetch } from './pay.ts';
import { type Line, linesOfRefusal, linesOfTranscript, linesOfUnderstanding } from './plain-words.ts';

function element<Kind extends Element>(selector: string): Kind {
  const found = document.querySelector<Kind>(selector);
  if (found === null) throw new Error(`no ${selector} on this page`);
  return found;
}

const script = element<HTMLScriptElement>('script[data-configuration]');
const { key } = JSON.parse(script.dataset.configuration ?? '{}') as { key: `0x${string}` };
const pay = payingFetch(key);
const base = script.src.replace(/demo\.js$/, '');

const sample = element<HTMLSelectElement>('#sample');
const text = element<HTMLTextAreaElement>('#text');
const address = element<HTMLInputElement>('#url');
const buttons = document.querySelectorAll('button');
const result = element<HTMLElement>('#result');
const player = element<HTMLAudioElement>('#player');
const cost = element<HTMLElement>('#cost');
const plain = element<HTMLElement>('#plain');
const whole = element<HTMLDetailsElement>('#whole');
const answer = element<HTMLElement>('#answer');

function show(lines: Line[], everything = ''): void {
  const list = document.createElement('dl');
  for (const [term, description] of lines) {
    const name = document.createElement('dt');
    name.textContent = term;
    const value = document.createElement('dd');
    value.textContent = description;
    list.append(name, value);
  }
  plain.replaceChildren(list);
  answer.textContent = everything;
  whole.hidden = everything === '';
}

/** One call at a time, from the press of a button until its answer is on the page. */
async function run(path: string, body: object, done: (response: Response) => Promise<void>): Promise<void> {
  for (const button of buttons) button.disabled = true;
  player.pause();
  player.hidden = true;
  cost.textContent = 'Paying and working …';
  show([]);
  result.scrollIntoView({ block: 'nearest' });
  try {
    const response = await pay(`${base}${path}`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', 'idempotency-key': crypto.randomUUID() },
      body: JSON.stringify(body),
    });
    if (response.ok) {
      await done(response);
      const paid = response.headers.get('x-payment-amount');
      cost.textContent = paid === null ? 'Cost: not told.' : `Cost: ${paid} USDC of play money.`;
    } else {
      const refusal = await response.text();
      show(linesOfRefusal(response.status, refusal), refusal);
      cost.textContent = 'Cost: nothing.';
    }
  } catch (error) {
    show([['It did not work', error instanceof Error ? error.message : String(error)]]);
    cost.textContent = 'Cost: nothing.';
  }
  for (const button of buttons) button.disabled = false;
  result.scrollIntoView({ block: 'nearest' });
}

sample.addEventListener('change', () => {
  text.value = sample.value;
});

element('#speak').addEventListener('click', () =>
  run('v1/speak', { text: text.value }, async (response) => {
    const audio = await response.blob();
    if (player.src !== '') URL.revokeObjectURL(player.src);
    player.src = URL.createObjectURL(audio);
    player.hidden = false;
    show([
      [
        'Audio',
        `${audio.type}, ${Math.ceil(audio.size / 1000)} kB, spoken by ${response.headers.get('dg-model-name')}`,
      ],
    ]);
    // a browser may want a press on the player itself
    await player.play().catch(() => undefined);
  }),
);

element('#read').addEventListener('click', () =>
  run('v1/read?summarize=true&topics=true&intents=true&sentiment=true', { text: text.value }, async (response) => {
    const read = await response.json();
    show(linesOfUnderstanding(read), JSON.stringify(read, null, 2));
  }),
);

element('#listen').addEventListener('click', () => {
  if (!address.reportValidity()) return;
  void run('v1/listen?utterances=true', { url: address.value }, async (response) => {
    const heard = await response.json();
    show(linesOfTranscript(heard), JSON.stringify(heard, null, 2));
  });
});
