/** Which shared libraries a program loads: only these are visible in its sandbox, not the host's /usr. */
import { execFile } from 'node:child_process';

/** Paths of the host, the dynamic loader included. */
export type Libraries = string[];

const LINE = /(?:=>\s*)?(\/\S+)\s+\(0x[0-9a-f]+\)/;

/** @throws Error when the program is not there; a static one has no libraries */
export function librariesOf(program: string): Promise<Libraries> {
  return new Promise((resolve, reject) => {
    execFile('ldd', [program], { timeout: 10_000 }, (error, stdout, stderr) => {
      const text = `${stdout}${stderr}`;
      if (/not a dynamic executable|statically linked/.test(text)) resolve([]);
      else if (error) reject(new Error(`ldd ${program}: ${stderr.trim() || error.message}`));
      else if (/=> not found/.test(text)) reject(new Error(`${program} misses libraries: ${text.trim()}`));
      else resolve(parseLdd(text));
    });
  });
}

/** @param text what `ldd` prints; the kernel's own vdso has no path and is left out */
export function parseLdd(text: string): Libraries {
  return text.split('\n').flatMap((line) => {
    const path = LINE.exec(line)?.[1];
    return path === undefined ? [] : [path];
  });
}
