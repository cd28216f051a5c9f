import { expect, test } from 'vitest';
import { explainStart } from '../../host/supervisor/start-failures.ts';

test.each([
  ['a file', 'ENOSPC'],
  ['a page', 'SQLITE_FULL'],
  ['the index of the log', 'SQLITE_IOERR_SHMSIZE'],
])('a disk that has no room for %s is told to be full', (_, code) => {
  const cause = Object.assign(new Error('no room'), { code });
  const error = Object.assign(new Error('disk I/O error', { cause }), { code: 'SQLITE_IOERR' });
  expect(explainStart(error, '/data')).toMatch(/^The disk is full \(no room\)\. Make room in \/data and /);
});

test('what is no fault of the disk is not explained', () => {
  expect(explainStart(Object.assign(new Error('x'), { code: 'SQLITE_IOERR' }), '/data')).toBeUndefined();
});
