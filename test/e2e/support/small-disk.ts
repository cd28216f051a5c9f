/** A program whose folder is a disk of its own that is soon full: a tmpfs in a mount namespace that ends with it. */

/** @returns the program and its arguments @param size as mount takes it */
export function onSmallDisk(folder: string, size: string, command: [string, ...string[]]): [string, ...string[]] {
  const mount = `mount -t tmpfs -o size=${size} tmpfs "$0" && exec "$@"`;
  return ['unshare', '--mount', '--map-root-user', 'sh', '-c', mount, folder, ...command];
}
