/** What a deployment's data points are called on disk: a folder below the tenant's. */
export const FOLDER = 'analytics';
