/**
 * The script of the demo page: three buttons, a player, the answer, and what it cost.
 * Bundled into src/pages/demo-client.txt by build-demo.ts; the tenant serves it as /demo.js.
 */
import { payingFetch, payingSocket } from './pay.ts';
import {
  heard,
  type Line,
  type LiveMessage,
  linesOfRefusal,
  linesOfTranscript,
  linesOfUnderstanding,
} from './plain-words.ts';

function element<Kind extends Element>(selector: string): Kind {
  const found = document.querySelector<Kind>(selector);
  if (found === null) throw new Error(`no ${selector} on this page`);
  return found;
}

const script = element<HTMLScriptElement>('script[data-configuration]');
const { key, perSecond, perMillionCharacters } = JSON.parse(script.dataset.configuration ?? '{}') as {
  key: `0x${string}`;
  /** micro-USD. */
  perSecond: number;
  perMillionCharacters: number;
};
const pay = payingFetch(key);
const openSocket = payingSocket(key);
const base = script.src.replace(/demo\.js$/, '');

const sample = element<HTMLSelectElement>('#sample');
const text = element<HTMLTextAreaElement>('#text');
const voice = element<HTMLInputElement>('#voice');
const file = element<HTMLInputElement>('#file');
const recordButton = element<HTMLButtonElement>('#record');
const transcribeButton = element<HTMLButtonElement>('#transcribe');
const streamButton = element<HTMLButtonElement>('#stream');
const liveButton = element<HTMLButtonElement>('#live');
const speakPrice = element<HTMLElement>('#speak-price');
const listenPrice = element<HTMLElement>('#listen-price');
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
async function run(path: string, body: object | Blob, done: (response: Response) => Promise<void>): Promise<void> {
  const disabled = [...buttons].filter((button) => button.disabled);
  for (const button of buttons) button.disabled = true;
  player.pause();
  player.hidden = true;
  cost.textContent = 'Paying and working …';
  show([]);
  result.scrollIntoView({ block: 'nearest' });
  try {
    const response = await pay(`${base}${path}`, {
      method: 'POST',
      headers: {
        // What follows a `;` are a recorder's codecs, which the file itself tells.
        'content-type': body instanceof Blob ? body.type.replace(/;.*/, '') || 'audio/wav' : 'application/json',
        'idempotency-key': crypto.randomUUID(),
      },
      body: body instanceof Blob ? body : JSON.stringify(body),
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
  for (const button of buttons) button.disabled = disabled.includes(button);
  result.scrollIntoView({ block: 'nearest' });
}

sample.addEventListener('change', () => {
  text.value = sample.value;
  showSpeakPrice();
});

function showSpeakPrice(): void {
  const characters = [...text.value].length;
  speakPrice.textContent = `Speak costs ${usd(characters * (perMillionCharacters / 1_000_000))} USDC for ${characters} characters.`;
}
text.addEventListener('input', showSpeakPrice);
showSpeakPrice();

/** What goes through a live stream before any of it is heard: more ends it. */
const MOST_STREAMED = 4_000_000;
const PIECE = 65_536;

/** What is to be transcribed next. */
let sound: Blob | undefined;

async function choose(chosen: Blob): Promise<void> {
  sound = chosen;
  transcribeButton.disabled = false;
  streamButton.disabled = chosen.size > MOST_STREAMED;
  const seconds = await lengthOf(chosen);
  listenPrice.textContent =
    seconds === undefined
      ? `Ready: ${Math.ceil(chosen.size / 1000)} kB. It costs ${usd(perSecond * 60)} USDC a minute.`
      : `Ready: ${seconds.toFixed(1)} s. It costs ${usd(seconds * perSecond)} USDC for each channel.`;
}

/** @returns seconds; undefined where this browser cannot tell */
function lengthOf(chosen: Blob): Promise<number | undefined> {
  return new Promise((resolve) => {
    const probe = new Audio(URL.createObjectURL(chosen));
    const end = (seconds: number | undefined) => {
      URL.revokeObjectURL(probe.src);
      resolve(seconds);
    };
    probe.addEventListener('loadedmetadata', () => end(Number.isFinite(probe.duration) ? probe.duration : undefined));
    probe.addEventListener('error', () => end(undefined));
  });
}

file.addEventListener('change', () => {
  const [chosen] = file.files ?? [];
  if (chosen) void choose(chosen);
});

/** @returns undefined where there is none, which is said */
async function microphone(): Promise<MediaStream | undefined> {
  try {
    return await navigator.mediaDevices.getUserMedia({ audio: true });
  } catch {
    listenPrice.textContent = 'This browser gives no microphone: allow it for this page, or choose a file.';
    return undefined;
  }
}

let recorder: MediaRecorder | undefined;
recordButton.addEventListener('click', async () => {
  if (recorder) {
    recorder.stop();
    return;
  }
  const stream = await microphone();
  if (!stream) return;
  const pieces: Blob[] = [];
  recorder = new MediaRecorder(stream);
  recorder.addEventListener('dataavailable', ({ data }) => pieces.push(data));
  const from = performance.now();
  const tell = () => {
    listenPrice.textContent = `Recording … ${Math.floor((performance.now() - from) / 1_000)} s`;
  };
  const telling = setInterval(tell, 250);
  recorder.addEventListener('stop', () => {
    clearInterval(telling);
    for (const track of stream.getTracks()) track.stop();
    void choose(new Blob(pieces, { type: recorder?.mimeType ?? 'audio/webm' }));
    recorder = undefined;
    recordButton.textContent = 'Record';
    recordButton.setAttribute('aria-pressed', 'false');
  });
  recorder.start();
  recordButton.textContent = 'Stop';
  recordButton.setAttribute('aria-pressed', 'true');
  tell();
});

function usd(microUsd: number): string {
  return (Math.max(1, Math.ceil(microUsd)) / 1_000_000).toFixed(6).replace(/0{1,4}$/, '');
}

element('#speak').addEventListener('click', () =>
  run(
    `v1/speak${voice.value === '' ? '' : `?model=${encodeURIComponent(voice.value)}`}`,
    { text: text.value },
    async (response) => {
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
    },
  ),
);

element('#read').addEventListener('click', () =>
  run('v1/read?summarize=true&topics=true&intents=true&sentiment=true', { text: text.value }, async (response) => {
    const read = await response.json();
    show(linesOfUnderstanding(read), JSON.stringify(read, null, 2));
  }),
);

function listen(body: object | Blob): void {
  void run('v1/listen?utterances=true&smart_format=true', body, async (response) => {
    const heard = await response.json();
    show(linesOfTranscript(heard), JSON.stringify(heard, null, 2));
  });
}

element('#listen').addEventListener('click', () => {
  if (address.reportValidity()) listen({ url: address.value });
});
transcribeButton.addEventListener('click', () => {
  if (sound) listen(sound);
});

/**
 * Shows what is heard as it comes, each utterance with its times, and what it cost when the stream has ended.
 * @param send gives the audio; it resolves when there is no more
 */
async function streamed(send: (socket: WebSocket) => Promise<void>): Promise<void> {
  const disabled = [...buttons].filter((button) => button.disabled);
  for (const button of buttons) button.disabled = button !== liveButton;
  cost.textContent = `Paying … A minute costs ${usd(perSecond * 60)} USDC.`;
  show([]);
  const list = document.createElement('dl');
  const name = document.createElement('dt');
  const words = document.createElement('dd');
  words.className = 'soft';
  plain.replaceChildren(list);
  result.scrollIntoView({ block: 'nearest' });
  let charged: string | undefined;
  try {
    const socket = await openSocket(`${base}v1/listen?interim_results=true&smart_format=true`);
    cost.textContent = 'Listening …';
    socket.addEventListener('message', ({ data }) => {
      const message = JSON.parse(String(data)) as LiveMessage;
      charged = message.charge?.usd ?? charged;
      const found = heard(message);
      if (!found) return;
      const [times, transcript] = found.line;
      name.textContent = times;
      words.textContent = transcript;
      // What may change still is the last one, and paler.
      if (found.final) {
        const stays = [name.cloneNode(true), words.cloneNode(true)] as HTMLElement[];
        stays[1]?.removeAttribute('class');
        name.remove();
        words.remove();
        list.append(...stays);
      } else list.append(name, words);
    });
    const closed = new Promise<CloseEvent>((resolve) => socket.addEventListener('close', resolve));
    await Promise.race([send(socket), closed]);
    if (socket.readyState === WebSocket.OPEN) socket.send('{"type":"CloseStream"}');
    const { code, reason } = await closed;
    name.remove();
    words.remove();
    if (list.childElementCount === 0) show([['Transcript', 'nothing was heard']]);
    cost.textContent =
      charged === undefined
        ? `Cost: not told. ${reason}`
        : `Cost: ${charged} USDC of play money.${code === 1000 ? '' : ` ${reason}`}`;
  } catch (error) {
    show([['It did not work', error instanceof Error ? error.message : String(error)]]);
    cost.textContent = 'Cost: nothing.';
  }
  for (const button of buttons) button.disabled = disabled.includes(button);
}

streamButton.addEventListener('click', () => {
  const chosen = sound;
  if (!chosen) return;
  void streamed(async (socket) => {
    for (let at = 0; at < chosen.size && socket.readyState === WebSocket.OPEN; at += PIECE)
      socket.send(await chosen.slice(at, at + PIECE).arrayBuffer());
  });
});

let speaking: MediaRecorder | undefined;
liveButton.addEventListener('click', async () => {
  if (speaking) {
    speaking.stop();
    return;
  }
  const stream = await microphone();
  if (!stream) return;
  const source = new MediaRecorder(stream);
  speaking = source;
  liveButton.textContent = 'Stop';
  liveButton.setAttribute('aria-pressed', 'true');
  await streamed(async (socket) => {
    const ended = new Promise((resolve) => source.addEventListener('stop', resolve));
    // Pieces in their order, although each is read by itself.
    let sent = Promise.resolve();
    source.addEventListener('dataavailable', ({ data }) => {
      sent = sent.then(async () => {
        const piece = await data.arrayBuffer();
        if (socket.readyState === WebSocket.OPEN) socket.send(piece);
      });
    });
    socket.addEventListener('close', () => source.state !== 'inactive' && source.stop());
    source.start(250);
    const begun = performance.now();
    const clock = setInterval(() => {
      const seconds = Math.floor((performance.now() - begun) / 1000);
      liveButton.textContent = `Stop after ${seconds} s, ${usd(seconds * perSecond)} USDC`;
    }, 500);
    await ended;
    clearInterval(clock);
    await sent;
  });
  if (source.state !== 'inactive') source.stop();
  for (const track of stream.getTracks()) track.stop();
  speaking = undefined;
  liveButton.textContent = 'Transcribe my voice live';
  liveButton.setAttribute('aria-pressed', 'false');
});
