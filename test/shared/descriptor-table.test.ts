import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { growDescriptorTable } from '../../host/shared/descriptor-table.ts';

/** Slots of this process's table, proc_pid_status(5). */
const slots = () => Number(/^FDSize:\s+(\d+)/m.exec(readFileSync('/proc/self/status', 'utf8'))?.[1]);

test('the table keeps the room that it was given', () => {
  const wanted = 4 * slots();
  growDescriptorTable(wanted);
  expect(slots()).toBeGreaterThanOrEqual(wanted);
});
