/** The short flags of `turnpike up` for a cluster, and the settings that they stand for. */
import { expect, it } from 'vitest';
import { settingFlags } from '../../host/cli/up.ts';

const CLUSTER = ['--cluster', 'postgres://db.example.com/turnpike'];
const DATABASE = ['--cluster-database', 'postgres://db.example.com/turnpike'];
const BUCKET = ['--cluster-storage-endpoint', 'https://s3.example.com', '--cluster-storage-bucket', 'box'];

it.each([
  [
    ['--port', '1', ...CLUSTER],
    ['--port', '1', ...DATABASE],
  ],
  [
    ['--s3', 'https://s3.example.com/box', ...CLUSTER],
    [...BUCKET, ...DATABASE],
  ],
  [
    ['--s3=https://s3.example.com/box/one/two', '--port', '1'],
    [...BUCKET, '--cluster-storage-prefix', 'one/two/', '--port', '1'],
  ],
  [
    ['--cluster-key', 'k', '--storage-s3-bucket', 'other'],
    ['--cluster-key', 'k', '--storage-s3-bucket', 'other'],
  ],
])('%j', (given, settings) => {
  expect(settingFlags(given)).toEqual(settings);
});

it.each(['https://s3.example.com', 'box', '', 'https://key:secret@s3.example.com/box'])('--s3 %j is refused', (url) => {
  expect(() => settingFlags(['--s3', url])).toThrow(/address of a bucket/);
});
