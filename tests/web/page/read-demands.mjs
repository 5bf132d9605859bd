// Reads messages from standard input, a JSON list; prints the demands that the page finds in each.

import { readFileSync } from 'node:fs';

import { demandsOfTexts } from '../../../eventctx/web/page/lost/demands.js';
import { spokenTexts } from '../../../eventctx/web/page/lost/spoken-text.js';

const messages = JSON.parse(readFileSync(0, 'utf8'));
process.stdout.write(JSON.stringify(messages.map((one) => demandsOfTexts(spokenTexts(one)))));
