/** What a tenant's database is called on disk: a folder below the tenant's, and a file in it. */
export const FOLDER = 'sql';
export const FILE = 'db.sqlite';
