// Reads messages with their parts from standard input, a JSON list; prints the parts that the page has.

import { readFileSync } from 'node:fs';

import { partsOf, takeParts } from '../../../eventctx/web/page/source/message-parts.js';

process.stdout.write(JSON.stringify(takeParts(JSON.parse(readFileSync(0, 'utf8'))).map(({ message }) => partsOf(message))));
