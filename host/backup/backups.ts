/** The backups of a running host. */
import type { Logger } from 'pino';
import type { Scheduler } from '../scheduler/index.ts';
import type { BackupChoice, BackupOutcome, BackupRequest } from './index.ts';

/** One at a time, by schedule and on demand. */
export class Backups {
  readonly #request: Omit<BackupRequest, keyof BackupChoice>;
  #turn: Promise<unknown> = Promise.resolve();

  constructor(request: Omit<BackupRequest, keyof BackupChoice>) {
    this.#request = request;
  }

  /** @throws Problem */
  run(choice: BackupChoice = {}): Promise<BackupOutcome> {
    const run = this.#turn.then(async () => {
      // A start does not wait for this code: it is needed when somebody makes a backup.
      const { runBackup } = await import('./index.ts');
      return runBackup({ ...this.#request, ...choice });
    });
    this.#turn = run.catch(() => undefined);
    return run;
  }

  /** Those at `backup.target`, newest first. @throws Problem */
  async list(): Promise<{ id: string; at: number; location: string }[]> {
    const { config, dataFolder } = this.#request;
    if (config.backup.target === '') return [];
    const { openBackupStore } = await import('./open-store.ts');
    const store = openBackupStore(config.backup.target, config.storage.s3, dataFolder);
    return (await store.list())
      .reverse()
      .map((id) => ({ id, at: Date.parse(id.replace(/T(\d\d)-(\d\d)-/, 'T$1:$2:')), location: store.describe(id) }));
  }

  /** Plans `backup.schedule`, if there is one. */
  schedule(scheduler: Pick<Scheduler, 'cron'>, log: Logger): void {
    const { schedule } = this.#request.config.backup;
    if (schedule === '') return;
    scheduler.cron(schedule, 'backup', async () => {
      try {
        const { location, bytes, removed, lacks } = await this.run();
        log.info({ location, bytes, removed, lacks }, 'a backup was made');
      } catch (error) {
        log.error({ err: error }, 'a backup failed');
      }
    });
  }
}
