/** What exists before the host starts. */
import type { Logger } from 'pino';
import type { Config } from '../../shared/config.ts';
import type { Folders } from '../folders.ts';
import { given } from '../service.ts';

export const config = given<Config>('config');
export const folders = given<Folders>('folders');
export const log = given<Logger>('log');
/** By the key of a setting that is not the default, where it comes from. */
export const settingOrigins = given<ReadonlyMap<string, string>>('origins of settings');
/** Of the program. */
export const version = given<string>('version');
