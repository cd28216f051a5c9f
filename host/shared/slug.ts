/** What a slug looks like: the name of a deployment, in its URL and its host name. */
export const SLUG = /^[a-z0-9](?:[a-z0-9-]{1,38}[a-z0-9])$/;
