# In the first PostgreSQL of compose.yaml, once, when its database is made: a standby may follow it, and from its next start on
# has every write before it is acknowledged.
echo 'host replication turnpike samenet scram-sha-256' >> "$PGDATA/pg_hba.conf"
psql -U turnpike -c "ALTER SYSTEM SET synchronous_standby_names = '*'"
