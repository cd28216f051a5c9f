/**
 * The tables, as lists of statements that are applied once each. What must never happen is refused here, by the
 * database: a negative balance, a transaction that does not sum to zero, an entry that changes.
 */
import { AGENTS } from './agents.ts';
import { MANDATES } from './mandates.ts';
import { NOTICES } from './notices.ts';
import { RENEWALS } from './renewals.ts';

/** Amounts are micro-USD; times are ms since the Unix epoch. */
export const MIGRATIONS: { name: string; statements: string[] }[] = [
  {
    name: '0001_accounts',
    statements: [
      `CREATE TABLE humans (
        id TEXT PRIMARY KEY,
        email TEXT NOT NULL UNIQUE,
        password_salt TEXT NOT NULL,
        password_hash TEXT NOT NULL,
        created_at INTEGER NOT NULL
      ) STRICT`,
      `CREATE TABLE accounts (
        id TEXT PRIMARY KEY,
        kind TEXT NOT NULL CHECK (kind IN ('human', 'anonymous')),
        human_id TEXT REFERENCES humans (id),
        created_at INTEGER NOT NULL,
        claimed_at INTEGER,
        CHECK (kind = 'anonymous' OR human_id IS NOT NULL)
      ) STRICT`,
      'CREATE INDEX accounts_human ON accounts (human_id, created_at)',
      `CREATE TABLE credentials (
        id TEXT PRIMARY KEY,
        account_id TEXT NOT NULL REFERENCES accounts (id),
        hash TEXT NOT NULL UNIQUE,
        hint TEXT NOT NULL,
        label TEXT NOT NULL,
        created_at INTEGER NOT NULL,
        last_used_at INTEGER,
        revoked_at INTEGER
      ) STRICT`,
      'CREATE INDEX credentials_account ON credentials (account_id)',
      `CREATE TABLE sessions (
        hash TEXT PRIMARY KEY,
        human_id TEXT NOT NULL REFERENCES humans (id),
        created_at INTEGER NOT NULL,
        expires_at INTEGER NOT NULL
      ) STRICT`,
      // A device that waits for a person: to sign in (login), or to hand an anonymous account over (claim).
      `CREATE TABLE device_codes (
        hash TEXT PRIMARY KEY,
        user_code TEXT NOT NULL UNIQUE,
        client TEXT NOT NULL,
        purpose TEXT NOT NULL CHECK (purpose IN ('login', 'claim')),
        claimed_account TEXT REFERENCES accounts (id),
        state TEXT NOT NULL CHECK (state IN ('pending', 'approved', 'denied', 'used')),
        human_id TEXT REFERENCES humans (id),
        interval_ms INTEGER NOT NULL,
        polled_at INTEGER,
        created_at INTEGER NOT NULL,
        expires_at INTEGER NOT NULL
      ) STRICT`,
      `CREATE TABLE rate_limits (
        bucket TEXT PRIMARY KEY,
        window_ends INTEGER NOT NULL,
        count INTEGER NOT NULL
      ) STRICT`,
    ],
  },
  {
    name: '0002_services',
    statements: [
      `CREATE TABLE services (
        slug TEXT PRIMARY KEY,
        -- {app_url} stands for the host's public origin.
        origin TEXT NOT NULL,
        name TEXT NOT NULL,
        -- The service whose plans sell the credit that pays here.
        credit_service TEXT NOT NULL,
        enabled INTEGER NOT NULL DEFAULT 1 CHECK (enabled IN (0, 1)),
        updated_at INTEGER NOT NULL
      ) STRICT`,
      `CREATE TABLE meters (
        service TEXT NOT NULL REFERENCES services (slug),
        slug TEXT NOT NULL,
        price INTEGER NOT NULL CHECK (price > 0),
        credit_only INTEGER NOT NULL CHECK (credit_only IN (0, 1)),
        description TEXT NOT NULL,
        updated_at INTEGER NOT NULL,
        PRIMARY KEY (service, slug)
      ) STRICT`,
      `CREATE TABLE plans (
        service TEXT NOT NULL REFERENCES services (slug),
        id TEXT NOT NULL,
        name TEXT NOT NULL,
        minimum INTEGER NOT NULL CHECK (minimum > 0),
        -- Life of the credit it sells; NULL: it does not expire.
        expires_after_days INTEGER CHECK (expires_after_days > 0),
        enabled INTEGER NOT NULL DEFAULT 1 CHECK (enabled IN (0, 1)),
        PRIMARY KEY (service, id)
      ) STRICT`,
      // Keys with which origins charge credit, for the services named; the host's own key is not a row.
      `CREATE TABLE service_keys (
        hash TEXT PRIMARY KEY,
        service TEXT NOT NULL REFERENCES services (slug),
        created_at INTEGER NOT NULL
      ) STRICT`,
      `INSERT INTO services (slug, origin, name, credit_service, updated_at) VALUES
        ('deals', '{app_url}/deals', 'Deals', 'deals-watches', 0),
        ('deals-watches', '{app_url}/deals', 'Watches of deals', 'deals-watches', 0)`,
      `INSERT INTO meters (service, slug, price, credit_only, description, updated_at) VALUES
        ('deals', 'deal_query', 150000, 0, 'One query of verified price drops', 0),
        ('deals', 'rules_read', 50000, 0, 'The scoring rules', 0),
        ('deals-watches', 'watch_created', 250000, 1, 'A watch and its first 24 hours', 0),
        ('deals-watches', 'watch_day', 100000, 1, 'A further 24 hours of a watch', 0)`,
      `INSERT INTO plans (service, id, name, minimum) VALUES ('deals-watches', 'default', 'Credit', 5000000)`,
    ],
  },
  {
    name: '0003_ledger',
    statements: [
      // Balances are kept by triggers alone. Only sources of money outside may go below zero.
      `CREATE TABLE ledger_accounts (
        id TEXT PRIMARY KEY,
        owner TEXT REFERENCES accounts (id),
        balance INTEGER NOT NULL DEFAULT 0,
        source INTEGER NOT NULL DEFAULT 0 CHECK (source IN (0, 1)),
        CHECK (source = 1 OR balance >= 0)
      ) STRICT`,
      'CREATE INDEX ledger_accounts_owner ON ledger_accounts (owner)',
      // The deferred reference makes a transaction without a seal impossible to commit.
      `CREATE TABLE ledger_transactions (
        id TEXT PRIMARY KEY REFERENCES ledger_seals (transaction_id) DEFERRABLE INITIALLY DEFERRED,
        key TEXT NOT NULL UNIQUE,
        kind TEXT NOT NULL CHECK (kind IN ('grant', 'charge', 'hold', 'capture', 'release', 'expire')),
        account TEXT NOT NULL REFERENCES accounts (id),
        service TEXT,
        amount INTEGER NOT NULL CHECK (amount > 0),
        usage TEXT,
        request_id TEXT,
        memo TEXT,
        at INTEGER NOT NULL
      ) STRICT`,
      'CREATE INDEX ledger_transactions_account ON ledger_transactions (account, at)',
      'CREATE TABLE ledger_seals (transaction_id TEXT PRIMARY KEY REFERENCES ledger_transactions (id)) STRICT',
      `CREATE TABLE ledger_entries (
        id INTEGER PRIMARY KEY,
        transaction_id TEXT NOT NULL REFERENCES ledger_transactions (id),
        account_id TEXT NOT NULL REFERENCES ledger_accounts (id),
        amount INTEGER NOT NULL CHECK (amount <> 0)
      ) STRICT`,
      'CREATE INDEX ledger_entries_transaction ON ledger_entries (transaction_id)',
      'CREATE INDEX ledger_entries_account ON ledger_entries (account_id)',
      `CREATE TRIGGER ledger_entries_sealed BEFORE INSERT ON ledger_entries
        WHEN EXISTS (SELECT 1 FROM ledger_seals WHERE transaction_id = NEW.transaction_id)
        BEGIN SELECT RAISE(ABORT, 'ledger: the transaction is sealed'); END`,
      `CREATE TRIGGER ledger_entries_apply AFTER INSERT ON ledger_entries
        BEGIN UPDATE ledger_accounts SET balance = balance + NEW.amount WHERE id = NEW.account_id; END`,
      `CREATE TRIGGER ledger_seals_balance BEFORE INSERT ON ledger_seals
        WHEN (SELECT count(*) < 2 OR sum(amount) <> 0 FROM ledger_entries WHERE transaction_id = NEW.transaction_id)
        BEGIN SELECT RAISE(ABORT, 'ledger: the transaction does not balance'); END`,
      ...['ledger_entries', 'ledger_transactions', 'ledger_seals'].flatMap((table) =>
        ['UPDATE', 'DELETE'].map(
          (change) =>
            `CREATE TRIGGER ${table}_no_${change.toLowerCase()} BEFORE ${change} ON ${table}
              BEGIN SELECT RAISE(ABORT, 'ledger: what was booked stays'); END`,
        ),
      ),
      `CREATE TRIGGER ledger_accounts_no_delete BEFORE DELETE ON ledger_accounts
        BEGIN SELECT RAISE(ABORT, 'ledger: what was booked stays'); END`,
      // The ledger account of a grant is 'grant:<id>'.
      `CREATE TABLE grants (
        id TEXT PRIMARY KEY,
        account TEXT NOT NULL REFERENCES accounts (id),
        source TEXT NOT NULL CHECK (source IN ('welcome', 'purchase', 'operator')),
        promotional INTEGER NOT NULL CHECK (promotional IN (0, 1)),
        priority INTEGER NOT NULL DEFAULT 100,
        amount INTEGER NOT NULL CHECK (amount > 0),
        expires_at INTEGER,
        created_at INTEGER NOT NULL
      ) STRICT`,
      'CREATE INDEX grants_account ON grants (account)',
      'CREATE INDEX grants_expiry ON grants (expires_at) WHERE expires_at IS NOT NULL',
      // Posted or voided exactly once: both use the key 'settle:<hold>' in the ledger.
      `CREATE TABLE holds (
        id TEXT PRIMARY KEY,
        account TEXT NOT NULL REFERENCES accounts (id),
        service TEXT NOT NULL,
        created_at INTEGER NOT NULL,
        settled_at INTEGER
      ) STRICT`,
      'CREATE INDEX holds_open ON holds (created_at) WHERE settled_at IS NULL',
    ],
  },
  {
    name: '0004_calls',
    statements: [
      `CREATE TABLE signing_keys (
        kid TEXT PRIMARY KEY,
        public_x TEXT NOT NULL,
        sealed_private TEXT NOT NULL,
        signs_from INTEGER NOT NULL,
        signs_until INTEGER NOT NULL
      ) STRICT`,
      // One row per paid call; the same key again answers what is stored here.
      `CREATE TABLE calls (
        key TEXT PRIMARY KEY,
        request_hash TEXT NOT NULL,
        request_id TEXT NOT NULL,
        state TEXT NOT NULL CHECK (state IN ('working', 'capturing', 'done')),
        attempt INTEGER NOT NULL DEFAULT 1,
        hold TEXT,
        amount INTEGER,
        status INTEGER,
        headers TEXT,
        body BLOB,
        started_at INTEGER NOT NULL,
        keep_until INTEGER NOT NULL
      ) STRICT`,
      'CREATE INDEX calls_kept ON calls (keep_until)',
      "CREATE INDEX calls_capturing ON calls (started_at) WHERE state = 'capturing'",
      `CREATE TABLE purchases (
        hold TEXT PRIMARY KEY,
        account TEXT NOT NULL REFERENCES accounts (id),
        service TEXT NOT NULL,
        plan TEXT NOT NULL,
        amount INTEGER NOT NULL,
        request_id TEXT NOT NULL,
        state TEXT NOT NULL CHECK (state IN ('capturing', 'granted', 'failed')),
        created_at INTEGER NOT NULL
      ) STRICT`,
      "CREATE INDEX purchases_open ON purchases (created_at) WHERE state = 'capturing'",
      `CREATE TABLE origin_events (
        id TEXT PRIMARY KEY,
        service TEXT NOT NULL,
        account TEXT NOT NULL,
        body TEXT NOT NULL,
        attempts INTEGER NOT NULL DEFAULT 0,
        next_at INTEGER NOT NULL,
        created_at INTEGER NOT NULL
      ) STRICT`,
      'CREATE INDEX origin_events_next ON origin_events (next_at)',
    ],
  },
  {
    name: '0005_welcome',
    statements: [
      'ALTER TABLE humans ADD COLUMN confirmed_at INTEGER',
      `CREATE TABLE email_codes (
        human_id TEXT PRIMARY KEY REFERENCES humans (id),
        hash TEXT NOT NULL,
        expires_at INTEGER NOT NULL
      ) STRICT`,
      // Bonuses of real money: `total` is what all of them come to with this one, `most` the limit at that time.
      `CREATE TABLE welcomed (
        mailbox TEXT PRIMARY KEY,
        amount INTEGER NOT NULL,
        total INTEGER NOT NULL,
        most INTEGER NOT NULL,
        CHECK (total <= most)
      ) STRICT`,
    ],
  },
  {
    name: '0006_password_resets',
    statements: [
      `CREATE TABLE password_resets (
        hash TEXT PRIMARY KEY,
        human_id TEXT NOT NULL REFERENCES humans (id),
        expires_at INTEGER NOT NULL
      ) STRICT`,
    ],
  },
  {
    name: '0007_spend_caps',
    statements: [
      // The most that a credential may spend in a day (UTC).
      'ALTER TABLE credentials ADD COLUMN daily_cap INTEGER CHECK (daily_cap > 0)',
      // Of credentials with a cap; what is held counts until it is given back.
      `CREATE TABLE credential_spend (
        credential TEXT NOT NULL REFERENCES credentials (id),
        day TEXT NOT NULL,
        amount INTEGER NOT NULL CHECK (amount >= 0),
        PRIMARY KEY (credential, day)
      ) STRICT`,
      'ALTER TABLE holds ADD COLUMN credential TEXT REFERENCES credentials (id)',
      'ALTER TABLE holds ADD COLUMN day TEXT',
      'ALTER TABLE holds ADD COLUMN amount INTEGER',
      `CREATE TRIGGER holds_capped AFTER INSERT ON holds
        WHEN (SELECT daily_cap FROM credentials WHERE id = NEW.credential) IS NOT NULL
        BEGIN
          INSERT INTO credential_spend (credential, day, amount) VALUES (NEW.credential, NEW.day, NEW.amount)
            ON CONFLICT (credential, day) DO UPDATE SET amount = amount + NEW.amount;
          SELECT RAISE(ABORT, 'spend cap: reached') WHERE
            (SELECT amount FROM credential_spend WHERE credential = NEW.credential AND day = NEW.day) >
            (SELECT daily_cap FROM credentials WHERE id = NEW.credential);
        END`,
      `CREATE TRIGGER ledger_release_uncaps AFTER INSERT ON ledger_transactions WHEN NEW.kind = 'release'
        BEGIN
          UPDATE credential_spend SET amount = max(0, amount - NEW.amount) WHERE (credential, day) =
            (SELECT credential, day FROM holds WHERE id = substr(NEW.key, ${'settle:'.length + 1}));
        END`,
    ],
  },
  {
    name: '0008_disputes',
    statements: [
      // What an account says of a charge, and what the operator decided.
      `CREATE TABLE disputes (
        charge TEXT PRIMARY KEY REFERENCES ledger_transactions (id),
        account TEXT NOT NULL REFERENCES accounts (id),
        request_id TEXT NOT NULL,
        reason TEXT NOT NULL,
        state TEXT NOT NULL CHECK (state IN ('open', 'refunded', 'refused')),
        note TEXT,
        created_at INTEGER NOT NULL,
        decided_at INTEGER
      ) STRICT`,
      'CREATE INDEX disputes_account ON disputes (account)',
      "CREATE INDEX disputes_open ON disputes (created_at) WHERE state = 'open'",
    ],
  },
  { name: '0009_notices', statements: NOTICES },
  { name: '0010_mandates', statements: MANDATES },
  { name: '0011_agents', statements: AGENTS },
  { name: '0012_renewals', statements: RENEWALS },
];
