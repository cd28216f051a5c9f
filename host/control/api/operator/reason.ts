/** Why an operator does something: one line of text. */
import { z } from 'zod';

export const reasonText = z
  .string()
  .trim()
  .min(1, 'says why, in a few words')
  .max(500)
  .regex(/^\P{Cc}*$/u, 'takes one line of text, without control characters');
