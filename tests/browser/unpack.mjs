// Unpacks the Chromium of @sparticuz/chromium, with the libraries and the font that a bare image lacks, into a folder beside
// its archives. The package itself would unpack into the folder of temporary files, where anyone may have put something else.
//
//   node unpack.mjs FOLDER
import { mkdtemp, rename, rm, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { pathToFileURL } from "node:url";

import { modules } from "./packages.mjs";

const archives = join(modules, "@sparticuz/chromium/bin");
const target = process.argv[2];

// Sans-serif text has the same shape on every machine; other fonts are those of the system, if it has any.
const fonts = `<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "urn:fontconfig:fonts.dtd">
<fontconfig>
  <dir prefix="relative">fonts</dir>
  <dir>/usr/share/fonts</dir>
  <cachedir>${target}/cache</cachedir>
  <alias binding="strong"><family>sans-serif</family><prefer><family>Open Sans</family></prefer></alias>
  <alias binding="strong"><family>monospace</family><prefer><family>DejaVu Sans Mono</family></prefer></alias>
  <alias binding="strong"><family>system-ui</family><prefer><family>Open Sans</family></prefer></alias>
</fontconfig>
`;

// The package reads the folder from this variable. Nobody sees a folder that is not complete.
const folder = await mkdtemp(join(dirname(target), "unpacking-"));
process.env.TMPDIR = folder;
const { inflate } = await import(pathToFileURL(join(modules, "@sparticuz/chromium/build/index.js")));
for (const archive of ["chromium.br", "al2023.tar.br", "fonts.tar.br"]) {
  await inflate(join(archives, archive));
}
await writeFile(join(folder, "fonts/fonts.conf"), fonts);
try {
  await rename(folder, target);
} catch (error) {
  // Another run has been faster.
  await rm(folder, { recursive: true });
  if (!["ENOTEMPTY", "EEXIST"].includes(error.code)) throw error;
}
