/** Where backups are kept: a folder, or a prefix in an S3 bucket. */

import type { S3Connection } from '../bindings/store-process/blobs/s3-transport.ts';
import { Problem } from '../shared/problem.ts';
import type { BackupStore } from './backup-store.ts';
import { FolderStore } from './folder-store.ts';
import { S3Store } from './s3-store.ts';

/**
 * @param target a folder, or `s3://bucket/prefix`
 * @param s3 endpoint and keys, for the latter
 * @param scratch a folder of this machine for what is not uploaded yet
 * @throws Problem invalid_config
 */
export function openBackupStore(target: string, s3: S3Connection | undefined, scratch: string): BackupStore {
  if (target === '') {
    throw new Problem(
      'invalid_config',
      'Set backup.target to a folder or s3://bucket/prefix: backups are written there.',
    );
  }
  if (!target.startsWith('s3://')) return new FolderStore(target);
  if (s3 === undefined || s3.endpoint === '') {
    throw new Problem('invalid_config', 'A backup to S3 needs storage.s3.endpoint, accessKey and secretKey.');
  }
  const { bucket, prefix } = /^s3:\/\/(?<bucket>[^/]+)(?:\/(?<prefix>.*?))?\/?$/.exec(target)?.groups ?? {};
  if (!bucket) throw new Problem('invalid_config', 'backup.target must look like s3://bucket/prefix.');
  return new S3Store(s3, bucket, prefix ? `${prefix}/` : '', scratch);
}
