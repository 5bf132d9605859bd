// The documents are those in the folder EVENTCTX_DOCUMENTS; without it there is no test.

import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';

import { piecesAgree, wholeAgrees } from './agreement.mjs';

const folder = process.env.EVENTCTX_DOCUMENTS;

for (const name of folder ? readdirSync(folder) : []) {
  const said = JSON.parse(readFileSync(join(folder, name), 'utf8'));
  test(`${name}: a whole document says what the engine says`, () => wholeAgrees(said));
  test(`${name}: and so do its pieces`, () => piecesAgree(said));
}
