/** The boundary for data points: what the binding in a tenant's sandbox sends. It is checked again here. */
import { z } from 'zod';
import { DATASET } from './dataset.ts';
import { BLOBS, type DataPoint, DOUBLES } from './schema.ts';

/** As many as one message of the binding has. */
const MOST_POINTS = 250;

/** A NUL would make the database read all its text with more care, and so slower (../d1/careful.ts). */
const text = z
  .string()
  .max(16_000)
  .transform((value) => value.toWellFormed().replaceAll('\0', '\uFFFD'))
  .nullable();

const message = z.tuple([
  z.string().regex(DATASET),
  z.array(z.tuple([text, z.array(text).max(BLOBS), z.array(z.number().nullable()).max(DOUBLES)])).max(MOST_POINTS),
]);

/** @param timestamp of all, seconds @returns undefined for what the binding does not send */
export function parsePoints(body: string, timestamp: number): DataPoint[] | undefined {
  let parsed: unknown;
  try {
    parsed = JSON.parse(body);
  } catch {
    return undefined;
  }
  const { success, data } = message.safeParse(parsed);
  if (!success) return undefined;
  const [dataset, points] = data;
  return points.map(([index, blobs, doubles]) => ({ timestamp, dataset, index, blobs, doubles }));
}

/** About what it takes in memory, bytes. */
export function pointBytes({ index, blobs, doubles }: DataPoint): number {
  return [index, ...blobs].reduce((sum, value) => sum + 2 * (value?.length ?? 0), 200 + 8 * doubles.length);
}
