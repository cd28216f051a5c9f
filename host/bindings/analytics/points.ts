/** The boundary for data points: what the binding in a tenant's sandbox sends. It is checked again here. */
import { DATASET } from './dataset.ts';
import { BLOBS, type DataPoint, DOUBLES } from './schema.ts';

/** As many as one message of the binding has. */
const MOST_POINTS = 250;

const MOST_CHARACTERS = 16_000;

/** @param timestamp of all, seconds @returns undefined for what the binding does not send */
export function parsePoints(body: string, timestamp: number): DataPoint[] | undefined {
  let parsed: unknown;
  try {
    parsed = JSON.parse(body);
  } catch {
    return undefined;
  }
  if (!isMessage(parsed)) return undefined;
  const [dataset, points] = parsed;
  return points.map(([index, blobs, doubles]) => ({
    timestamp,
    dataset,
    index: kept(index),
    blobs: blobs.map(kept),
    doubles,
  }));
}

type Text = string | null;
type Message = [dataset: string, points: [Text, Text[], (number | null)[]][]];

/** By hand: it is also part of the worker that keeps the points of several nodes. */
function isMessage(value: unknown): value is Message {
  if (!isTuple(value, 2)) return false;
  const [dataset, points] = value;
  if (typeof dataset !== 'string' || !DATASET.test(dataset)) return false;
  return isList(points, MOST_POINTS, isPoint);
}

function isPoint(value: unknown): boolean {
  return (
    isTuple(value, 3) && isText(value[0]) && isList(value[1], BLOBS, isText) && isList(value[2], DOUBLES, isNumber)
  );
}

const isText = (value: unknown) => value === null || (typeof value === 'string' && value.length <= MOST_CHARACTERS);
const isNumber = (value: unknown) => value === null || Number.isFinite(value);
const isTuple = (value: unknown, length: number): value is unknown[] => Array.isArray(value) && value.length === length;
const isList = (value: unknown, most: number, isOne: (one: unknown) => boolean) =>
  Array.isArray(value) && value.length <= most && value.every(isOne);

/** A NUL would make the database read all its text with more care, and so slower (../d1/careful.ts). */
function kept(text: Text): Text {
  return text === null ? null : text.toWellFormed().replaceAll('\0', '\uFFFD');
}

/** About what it takes in memory, bytes. */
export function pointBytes({ index, blobs, doubles }: DataPoint): number {
  return [index, ...blobs].reduce((sum, value) => sum + 2 * (value?.length ?? 0), 200 + 8 * doubles.length);
}
