/** Deploy keys: what acts for an owner in place of the wallet, within limits. Known to the host and to the command. */

/** What a key may be allowed, in words for people. There is no action that moves money, or that hands a deployment over. */
export const KEY_ACTIONS = {
  update: 'replace code, static files and settings; not prices, payTo or secrets',
  rollback: 'go back to a version',
  secrets: 'set and remove secrets',
  logs: 'read the log and the runs of crons',
  data: 'read and write what KV, D1 and R2 keep',
  usage: 'read usage and revenue',
} as const;

export type KeyAction = keyof typeof KEY_ACTIONS;

export const KEY_ACTION_NAMES = Object.keys(KEY_ACTIONS) as [KeyAction, ...KeyAction[]];

const BEGINNING = 'tpk_';
/** Its id, and 256 random bits. */
const DEPLOY_KEY = /^tpk_([0-9a-f]{12})_[\w-]{43}$/;

export function newDeployKey(id: string, random: Uint8Array): string {
  return `${BEGINNING}${id}_${Buffer.from(random).toString('base64url')}`;
}

/** Whether a text is meant as a deploy key, well formed or not. */
export function isDeployKey(text: string): boolean {
  return text.startsWith(BEGINNING);
}

/** The id in a key; undefined where the text is none. */
export function deployKeyId(text: string): string | undefined {
  return DEPLOY_KEY.exec(text)?.[1];
}
