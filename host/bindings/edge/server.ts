/** Gives the edges' common socket a name in the folder of each deployment that binds it. */
import { linkSync, rmSync } from 'node:fs';
import type { BindingServer, ServerHost } from '../server.ts';

export function edgeServer({ edgeSocket }: ServerHost): BindingServer | undefined {
  if (edgeSocket === undefined) return undefined;
  return {
    serve({ socket }) {
      const remove = () => rmSync(socket, { force: true });
      return {
        // Without `permit`: it is one file by many names, which everybody may connect to who has one of them.
        async open() {
          remove();
          linkSync(edgeSocket, socket);
        },
        close: async () => remove(),
      };
    },
  };
}
