// Reads the names of files of tests/web/test_agreement.py, one a line, and answers each with a line of its
// own: nothing where the browser agrees with the engine, else what differs.

import { readFileSync } from 'node:fs';
import { createInterface } from 'node:readline';

import { piecesAgree, wholeAgrees } from './agreement.mjs';

for await (const name of createInterface({ input: process.stdin })) {
  let found = '';
  try {
    const said = JSON.parse(readFileSync(name, 'utf8'));
    await wholeAgrees(said);
    await piecesAgree(said);
  } catch (error) {
    found = JSON.stringify(error instanceof Error ? error.message : String(error));
  }
  process.stdout.write(`${found}\n`);
}
