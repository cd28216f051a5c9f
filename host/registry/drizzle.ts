/**
 * drizzle-orm and its libSQL client, as CommonJS where they are not packed. It is the same code, but Node links the two
 * hundred files of their ESM form one by one: 430 ms of a start instead of 70, and 15 packed.
 */
import { createRequire } from 'node:module';

const require = createRequire(import.meta.url);

export const {
  and,
  asc,
  desc,
  eq,
  getTableColumns,
  gt,
  gte,
  inArray,
  is,
  isNotNull,
  isNull,
  lt,
  lte,
  ne,
  notInArray,
  or,
  Param,
  Placeholder,
  sql,
} = require('drizzle-orm') as typeof import('drizzle-orm');
export const { blob, customType, integer, primaryKey, sqliteTable, text } =
  require('drizzle-orm/sqlite-core') as typeof import('drizzle-orm/sqlite-core');
export const { drizzle } = require('drizzle-orm/libsql/sqlite3') as typeof import('drizzle-orm/libsql/sqlite3');
export const { LibsqlError } = require('@libsql/client/sqlite3') as typeof import('@libsql/client/sqlite3');
