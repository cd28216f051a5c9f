/** On several nodes, the database with a deployment's data points. No database of D1 can have this id. */
export const POINTS_DATABASE = '-analytics';
/** What is asked of it begins with this. */
export const POINTS_URL = 'http://analytics/';
