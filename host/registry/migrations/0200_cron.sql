-- What each tenant's cron expressions have done. `since` is the occurrence that ran last, or the time from which the
-- expression counts; both in milliseconds since the Unix epoch.
CREATE TABLE cron_triggers (
  tenant TEXT NOT NULL,
  cron TEXT NOT NULL,
  since INTEGER NOT NULL,
  PRIMARY KEY (tenant, cron)
) STRICT;

CREATE TABLE cron_runs (
  id INTEGER PRIMARY KEY,
  tenant TEXT NOT NULL,
  cron TEXT NOT NULL,
  scheduled_at INTEGER NOT NULL,
  started_at INTEGER NOT NULL,
  finished_at INTEGER,
  -- running; what the runtime says of a finished run; interrupted: the host ended during it.
  outcome TEXT NOT NULL,
  error TEXT
) STRICT;
CREATE INDEX cron_runs_latest ON cron_runs (tenant, cron, id);
CREATE INDEX cron_runs_running ON cron_runs (outcome) WHERE outcome = 'running';
