// Reads messages from standard input, a JSON list, as the page reads them; prints their parts.

import { readFileSync } from 'node:fs';

import { partsOfResult, readMessageParts } from '../../../eventctx/web/page/panes/message-parts.js';

const described = (part) => ({
  kind: part.kind, place: part.place, type: part.type, ids: part.ids, name: part.name, failed: part.failed,
  inner: part.kind === 'result' ? partsOfResult(part).map((one) => [one.kind, one.place, one.type]) : [],
});

const messages = JSON.parse(readFileSync(0, 'utf8'));
process.stdout.write(JSON.stringify(messages.map((one) => readMessageParts(one).map(described))));
