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
