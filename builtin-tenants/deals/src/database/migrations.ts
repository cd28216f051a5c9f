/** The tables, in the order in which they came to be. Times are ms of business time unless a column says otherwise. */
export const MIGRATIONS: { name: string; statements: string[] }[] = [
  {
    name: '0001_sources_and_offers',
    statements: [
      `CREATE TABLE sources (
        id TEXT PRIMARY KEY, kind TEXT NOT NULL, url TEXT NOT NULL, settings TEXT NOT NULL,
        state TEXT NOT NULL CHECK (state IN ('new', 'ok', 'failing', 'blocked')),
        etag TEXT, last_modified TEXT, failures INTEGER NOT NULL DEFAULT 0, error TEXT,
        next_at INTEGER NOT NULL, last_ok_at INTEGER, last_try_at INTEGER) STRICT`,
      `CREATE TABLE offers (
        id TEXT PRIMARY KEY, offer_key TEXT NOT NULL UNIQUE, source TEXT NOT NULL REFERENCES sources (id),
        merchant TEXT NOT NULL, title TEXT NOT NULL, url TEXT NOT NULL, gtin TEXT, sku TEXT, category TEXT,
        variant TEXT NOT NULL, condition TEXT NOT NULL, country TEXT NOT NULL,
        currency TEXT NOT NULL, exponent INTEGER NOT NULL, availability TEXT NOT NULL,
        unit_count TEXT, demo INTEGER NOT NULL, first_seen_at INTEGER NOT NULL, last_seen_at INTEGER NOT NULL,
        dirty INTEGER NOT NULL DEFAULT 1) STRICT`,
      'CREATE INDEX offers_dirty ON offers (dirty) WHERE dirty = 1',
      `CREATE TABLE observations (
        id INTEGER PRIMARY KEY AUTOINCREMENT, offer TEXT NOT NULL REFERENCES offers (id), at INTEGER NOT NULL,
        state TEXT NOT NULL CHECK (state IN ('ok', 'failed', 'blocked')),
        minor INTEGER, list_minor INTEGER, availability TEXT, url TEXT NOT NULL, sha256 TEXT NOT NULL,
        CHECK ((state = 'ok') = (minor IS NOT NULL))) STRICT`,
      'CREATE INDEX observations_offer ON observations (offer, at)',
      "CREATE TRIGGER observations_are_final BEFORE UPDATE ON observations BEGIN SELECT RAISE(ABORT, 'observations are append-only'); END",
      "CREATE TRIGGER observations_stay BEFORE DELETE ON observations BEGIN SELECT RAISE(ABORT, 'observations are append-only'); END",
    ],
  },
  {
    name: '0002_deals',
    statements: [
      `CREATE TABLE rulesets (version INTEGER PRIMARY KEY, digest TEXT NOT NULL UNIQUE, body TEXT NOT NULL, created_at INTEGER NOT NULL) STRICT`,
      `CREATE TABLE deals (
        id TEXT PRIMARY KEY, offer TEXT NOT NULL REFERENCES offers (id), revision INTEGER NOT NULL,
        status TEXT NOT NULL CHECK (status IN ('active', 'ended')), body TEXT NOT NULL,
        title TEXT NOT NULL, merchant TEXT NOT NULL, category TEXT, gtin TEXT, country TEXT NOT NULL, currency TEXT NOT NULL,
        minor INTEGER NOT NULL, discount_bps INTEGER NOT NULL, score INTEGER NOT NULL, confidence INTEGER NOT NULL,
        at_low INTEGER NOT NULL, availability TEXT NOT NULL,
        first_seen_at INTEGER NOT NULL, updated_at INTEGER NOT NULL, expires_at INTEGER NOT NULL) STRICT`,
      "CREATE UNIQUE INDEX deals_one_active ON deals (offer) WHERE status = 'active'",
      'CREATE INDEX deals_ranking ON deals (status, score DESC, id)',
    ],
  },
  {
    name: '0003_watches',
    statements: [
      `CREATE TABLE watches (
        id TEXT PRIMARY KEY, account TEXT NOT NULL, request TEXT NOT NULL UNIQUE,
        state TEXT NOT NULL CHECK (state IN ('running', 'suspended', 'deleted')),
        query TEXT NOT NULL, "trigger" TEXT NOT NULL, every_s INTEGER NOT NULL, delivery TEXT NOT NULL, webhook_secret TEXT,
        created_at INTEGER NOT NULL, updated_at INTEGER NOT NULL, paid_through INTEGER NOT NULL,
        period_start INTEGER, suspended_at INTEGER, next_at INTEGER NOT NULL, evaluation INTEGER NOT NULL DEFAULT 0,
        memory TEXT NOT NULL DEFAULT '{}', next_sequence INTEGER NOT NULL DEFAULT 1) STRICT`,
      "CREATE INDEX watches_due ON watches (next_at) WHERE state = 'running'",
      "CREATE INDEX watches_unpaid ON watches (paid_through) WHERE state = 'running'",
      "CREATE INDEX watches_suspended ON watches (account, created_at, id) WHERE state = 'suspended'",
      'CREATE INDEX watches_account ON watches (account, created_at)',
      `CREATE TABLE watch_events (
        place INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE,
        watch TEXT NOT NULL REFERENCES watches (id), sequence INTEGER NOT NULL, type TEXT NOT NULL,
        body TEXT NOT NULL, created_at INTEGER NOT NULL,
        delivery TEXT NOT NULL CHECK (delivery IN ('none', 'waiting', 'delivered', 'given_up')),
        attempts INTEGER NOT NULL DEFAULT 0, next_at INTEGER,
        UNIQUE (watch, sequence)) STRICT`,
      "CREATE INDEX watch_events_due ON watch_events (next_at) WHERE delivery = 'waiting'",
      'CREATE INDEX watch_events_old ON watch_events (created_at)',
      'CREATE TABLE nonces (nonce TEXT PRIMARY KEY, forget_at INTEGER NOT NULL) STRICT',
      'CREATE INDEX nonces_old ON nonces (forget_at)',
    ],
  },
  {
    name: '0004_claims',
    statements: [
      // The run that charges period_start, and until when (ms of real time) no other one does.
      'ALTER TABLE watches ADD COLUMN claimed_by TEXT',
      'ALTER TABLE watches ADD COLUMN claimed_until INTEGER',
      'CREATE INDEX watches_claimed ON watches (id) WHERE period_start IS NOT NULL',
    ],
  },
  {
    name: '0005_sales',
    statements: ['ALTER TABLE sources ADD COLUMN holds_until INTEGER'],
  },
  {
    name: '0006_pauses',
    statements: ['ALTER TABLE watches ADD COLUMN paused_at INTEGER'],
  },
];
