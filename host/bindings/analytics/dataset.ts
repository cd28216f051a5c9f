/** Name of a dataset. It becomes the name of a view in the database. */
export const DATASET = /^(?!sqlite_|turnpike_|_cf_)[A-Za-z_$][\w$-]{0,63}$/i;
