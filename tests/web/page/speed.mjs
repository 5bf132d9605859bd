// How long the page's data layer takes with 100,000 messages, 5,000 requests and 90 compactions:
// `node tests/web/page/speed.mjs`. In milliseconds; the middle and the 95th of a hundred.

import { envelopeOf } from '../../../eventctx/web/page/charts/overview-paint.js';
import { RiverRows } from '../../../eventctx/web/page/charts/river-rows.js';
import { packDocument, withSums } from '../../../eventctx/web/page/timeline/packing.js';
import { presenceRuns } from '../../../eventctx/web/page/timeline/presence.js';
import { Timeline } from '../../../eventctx/web/page/timeline/timeline.js';
import { seeded } from './chaos.mjs';
import { hugeDocument } from './made.mjs';

const random = seeded(1);

function timed(run) {
  const started = performance.now();
  const result = run();
  return { took: performance.now() - started, result };
}

function row(name, run, count = 100) {
  const took = Array.from({ length: count }, () => timed(run).took).sort((one, other) => one - other);
  const [middle, late] = [took[Math.floor(count / 2)], took[Math.floor(count * 0.95)]];
  process.stdout.write(`${name.padEnd(52)} ${middle.toFixed(2).padStart(8)} ${late.toFixed(2).padStart(8)}\n`);
}

const text = JSON.stringify(hugeDocument());
const once = (name, run) => {
  const { took, result } = timed(run);
  process.stdout.write(`${name.padEnd(52)} ${took.toFixed(2).padStart(8)}\n`);
  return result;
};
const document = once(`read ${(text.length / 1e6).toFixed(1)} MB of JSON (worker)`, () => JSON.parse(text));
const packed = once('typed arrays (worker)', () => packDocument(document));
const summed = once('all sums (worker)', () => withSums(packed));
const timeline = once('timeline of what the worker handed over', () => Timeline.from(summed));

const { count } = timeline.requests;
const request = () => random.below(count);
const forget = () => {
  timeline.views.cached.clear();
  timeline.standingTable.forget();
};
let scrubbed = count - 400;

row('jump: a view anywhere, nothing kept', () => (forget(), timeline.view(request())));
row('jump: view, sums, standings of all, words out', () => {
  forget();
  const at = request();
  timeline.view(at);
  timeline.sums(at);
  timeline.standings(at);
  timeline.wordsOutOfView(at);
});
row('scrub: the same, one request on', () => {
  scrubbed += 1;
  timeline.view(scrubbed);
  timeline.sums(scrubbed);
  timeline.standings(scrubbed);
  timeline.wordsOutOfView(scrubbed);
});
row('standing of one message, with its cause', () => timeline.standing(random.below(100_000), request()));
row('river of 400 requests', () => [...new RiverRows(timeline).fill(count - 400, count - 1)]);
row('river of all requests', () => [...new RiverRows(timeline).fill(0, count - 1)], 20);
row('envelope of 1,200 columns', () => envelopeOf(timeline, 1_200));
row('presence of all messages, 400 requests', () => [...presenceRuns(timeline, [count - 400, count - 1])], 20);
row('presence of all messages, all requests', () => [...presenceRuns(timeline, [0, count - 1])], 20);
