/** On several nodes, the database with a deployment's data points. No database of D1 can have this id. */
export const POINTS_DATABASE = '-analytics';
