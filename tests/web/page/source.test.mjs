import assert from 'node:assert/strict';
import { test } from 'node:test';

import { BodyBlocks } from '../../../eventctx/web/page/source/server.js';
import { TimelineDecoder } from '../../../eventctx/web/page/source/decoding.js';
import { followTimeline } from '../../../eventctx/web/page/source/following.js';
import { partsOf } from '../../../eventctx/web/page/source/message-parts.js';
import { serverSource, sessionPlace } from '../../../eventctx/web/page/source/server.js';
import { ERASED } from '../../../eventctx/web/page/timeline/standing.js';
import { packDocument } from '../../../eventctx/web/page/timeline/packing.js';
import { Timeline } from '../../../eventctx/web/page/timeline/timeline.js';
import { chaos, documentOf, seeded } from './chaos.mjs';

const RECORDS = chaos(seeded(4));
const END = RECORDS.length;

const settled = () => new Promise((resolve) => setImmediate(resolve));

/** A server of bodies that remembers what it was asked. */
function bodies({ size = 10 } = {}) {
  const asked = [];
  return {
    asked,
    answer(addresses) {
      asked.push(addresses);
      const messages = addresses.map((address) => (address === '9.9' ? null : { content: address }));
      return Promise.resolve({ messages, size: size * addresses.length });
    },
  };
}

const at = (position) => ({ position, index: 0 });

test('bodies that are asked for together come in blocks of at most 64', async () => {
  const server = bodies();
  const blocks = new BodyBlocks(server.answer);
  const wanted = Array.from({ length: 130 }, (_, position) => at(position));
  const lists = await Promise.all([blocks.get(wanted.slice(0, 70)), blocks.get(wanted.slice(50))]);
  assert.deepEqual(server.asked.map((block) => block.length), [64, 64, 2]);
  assert.deepEqual(lists[1].map(({ content }) => content), wanted.slice(50).map(({ position }) => `${position}.0`));
});

test('a body is asked for once, while it is under way and afterwards', async () => {
  const server = bodies();
  const blocks = new BodyBlocks(server.answer);
  const first = blocks.get([at(1)]);
  await settled();
  await Promise.all([first, blocks.get([at(1)])]);
  await blocks.get([at(1), { position: 9, index: 9 }]);
  assert.deepEqual(await blocks.get([{ position: 9, index: 9 }]), [null]);
  assert.deepEqual(server.asked, [['1.0'], ['9.9']]);
});

test('the bodies that were used last are kept while there is room', async () => {
  const server = bodies({ size: 10 });
  const blocks = new BodyBlocks(server.answer, 30);
  await blocks.get([at(1), at(2), at(3)]);
  await blocks.get([at(1)]);
  await blocks.get([at(4)]);
  await blocks.get([at(1)]);
  await blocks.get([at(2)]);
  assert.deepEqual(server.asked.slice(1), [['4.0'], ['2.0']]);
  assert.ok(blocks.kept.size <= 30);
});

test('one body larger than the room is shown all the same', async () => {
  const blocks = new BodyBlocks(bodies({ size: 100 }).answer, 30);
  assert.deepEqual(await blocks.get([at(1)]), [{ content: '1.0' }]);
});

test('what failed is asked for again when it is wanted again', async () => {
  const server = bodies();
  let broken = true;
  const blocks = new BodyBlocks((addresses) => {
    if (broken) return Promise.reject(new Error('gone'));
    return server.answer(addresses);
  });
  await assert.rejects(blocks.get([at(1)]), /gone/);
  broken = false;
  assert.deepEqual(await blocks.get([at(1)]), [{ content: '1.0' }]);
});

/** A server of a growing session: streams that a test speaks for, and one answer to all questions. */
class Port {
  constructor(timeline) {
    this.streams = [];
    this.timers = [];
    this.states = [];
    this.asked = [];
    this.stop = followTimeline(timeline, this, (state) => this.states.push(state));
  }

  open(after) {
    const stream = new EventTarget();
    Object.assign(stream, { after, readyState: 1, closed: false });
    stream.close = () => Object.assign(stream, { closed: true, readyState: 2 });
    this.streams.push(stream);
    return stream;
  }

  since(after) {
    this.asked.push(after);
    return this.broken ? Promise.reject(Object.assign(new Error('gone'), { status: this.broken })) : Promise.resolve(documentOf(RECORDS, after + 1, END));
  }

  later(run, milliseconds) {
    this.timers.push({ run, milliseconds });
    return () => (this.timers = this.timers.filter((one) => one.run !== run));
  }

  get stream() {
    return this.streams.at(-1);
  }

  send(start, end, otherwise = {}) {
    const data = JSON.stringify({ ...documentOf(RECORDS, start, end), ...otherwise });
    this.stream.dispatchEvent(Object.assign(new Event('timeline'), { data }));
  }

  say(type) {
    this.stream.dispatchEvent(new Event(type));
  }

  fail({ closed }) {
    this.stream.readyState = closed ? 2 : 0;
    this.say('error');
  }
}

const opened = (end = 5) => Timeline.from(documentOf(RECORDS, 0, end));

test('a followed timeline grows by what the server sends', () => {
  const timeline = opened();
  const port = new Port(timeline);
  assert.equal(port.stream.after, 4);
  port.say('open');
  port.send(5, 7);
  port.send(7, END);
  assert.equal(timeline.head, END - 1);
  assert.deepEqual(port.states, ['open']);
});

test('a connection that breaks is lost until the browser has it again, and nothing is taken twice', () => {
  const timeline = opened();
  const port = new Port(timeline);
  port.say('open');
  port.send(5, 7);
  port.fail({ closed: false });
  port.say('open');
  port.send(5, 7);
  port.send(7, 9);
  assert.equal(timeline.head, 8);
  assert.deepEqual(port.states, ['open', 'lost', 'open']);
  assert.equal(port.streams.length, 1);
});

test('where the browser gives up, a new stream begins behind the head, later and later', () => {
  const timeline = opened();
  const port = new Port(timeline);
  port.send(5, 7);
  const waits = [];
  for (let attempt = 0; attempt < 7; attempt++) {
    port.fail({ closed: true });
    const [{ run, milliseconds }] = port.timers.splice(0);
    waits.push(milliseconds);
    run();
  }
  assert.equal(port.stream.after, 6);
  assert.deepEqual(waits, [500, 1000, 2000, 4000, 4000, 4000, 4000]);
  port.say('open');
  port.fail({ closed: true });
  assert.equal(port.timers[0].milliseconds, 500);
});

test('a gap is filled by a question, and the stream goes on behind it', async () => {
  const timeline = opened();
  const port = new Port(timeline);
  port.send(7, 9);
  port.send(9, 10);
  await settled();
  assert.deepEqual(port.asked, [4]);
  assert.equal(timeline.head, END - 1);
  assert.equal(port.streams[0].closed, true);
  port.timers.splice(0)[0].run();
  assert.equal(port.stream.after, END - 1);
});

test('a gap that cannot be filled is tried again', async () => {
  const timeline = opened();
  const port = new Port(timeline);
  port.broken = true;
  port.send(7, 9);
  await settled();
  assert.deepEqual(port.states, ['lost']);
  port.timers.splice(0)[0].run();
  assert.equal(port.stream.after, 4);
  port.send(5, END);
  assert.equal(timeline.head, END - 1);
});

test('a session that cannot be followed any more is not asked for again', async () => {
  const timeline = opened();
  const port = new Port(timeline);
  port.say('open');
  port.say('trouble');
  port.fail({ closed: true });
  await settled();
  assert.deepEqual(port.states, ['open', 'ended']);
  assert.deepEqual([port.stream.closed, port.streams.length, port.timers], [true, 1, []]);
});

test('a session that is gone when its stream says trouble makes the timeline outdated', async () => {
  const port = new Port(opened());
  port.say('open');
  port.since = async () => { throw Object.assign(new Error('no session'), { status: 404 }); };
  port.say('trouble');
  await settled();
  assert.deepEqual([port.states, port.streams.length, port.timers], [['open', 'outdated'], 1, []]);
});

test('an erasure, or another log of the same name, makes the timeline outdated and ends it', () => {
  const run = { position: [6], first: [0], last: [0], what: [ERASED], reason: [-1], compaction: [-1], into: [-1] };
  for (const otherwise of [{ changes: run }, { after_digest: 'another' }]) {
    const timeline = opened();
    const port = new Port(timeline);
    port.send(5, 7, otherwise);
    port.send(5, 7);
    assert.deepEqual([timeline.head, port.states, port.stream.closed], [4, ['outdated'], true]);
  }
});

test('a gap in which something was erased makes the timeline outdated', async () => {
  const port = new Port(opened());
  port.since = async () => ({ ...documentOf(RECORDS, 5, END), after_digest: 'another' });
  port.send(7, 9);
  await settled();
  assert.deepEqual([port.states, port.timers], [['outdated'], []]);
});

test('a stream that is refused because the session is gone makes the timeline outdated', async () => {
  for (const status of [404, 400, 410]) {
    const port = new Port(opened());
    port.broken = status;
    port.fail({ closed: true });
    await settled();
    assert.deepEqual([port.states, port.timers], [['lost', 'outdated'], []]);
  }
});

test('a stream that is refused for another reason is tried again', async () => {
  for (const status of [403, 500, 503]) {
    const port = new Port(opened());
    port.broken = status;
    port.fail({ closed: true });
    await settled();
    assert.deepEqual([port.states, port.timers.length], [['lost'], 1]);
  }
});

test('who stopped following hears nothing more', async () => {
  const timeline = opened();
  const port = new Port(timeline);
  port.fail({ closed: true });
  port.stop();
  assert.deepEqual(port.timers, []);
  port.states.length = 0;
  port.send(5, 7);
  port.fail({ closed: true });
  await settled();
  assert.deepEqual([timeline.head, port.states, port.timers], [4, [], []]);
});

/** Answers every `fetch` by its address while `run` runs. */
async function answering(answers, run) {
  const real = globalThis.fetch;
  const asked = [];
  globalThis.fetch = (address) => {
    asked.push(address);
    const [status, body] = answers(address);
    return Promise.resolve(new Response(typeof body === 'string' ? body : JSON.stringify(body), { status }));
  };
  try {
    await run(asked);
  } finally {
    globalThis.fetch = real;
  }
}

test('without a worker the page decodes by itself', async () => {
  await answering(() => [200, documentOf(RECORDS, 0, END)], async (asked) => {
    const timeline = await serverSource().timeline('a/b #1');
    assert.equal(timeline.head, END - 1);
    assert.deepEqual(asked, ['/api/s/a%2Fb%20%231/timeline']);
  });
});

/** A worker that answers, breaks, or refuses. */
class DoubleWorker extends EventTarget {
  constructor(how) {
    super();
    this.how = how;
    this.terminated = false;
  }

  postMessage({ id }) {
    const packed = packDocument(documentOf(RECORDS, 0, END));
    const data = this.how === 'answers' ? { id, packed } : { id, error: 'no such session' };
    const event = this.how === 'breaks' ? new Event('error') : Object.assign(new Event('message'), { data });
    queueMicrotask(() => this.dispatchEvent(event));
  }

  terminate() {
    this.terminated = true;
  }
}

test('a worker that answers, refuses or breaks', async () => {
  await answering(() => [200, documentOf(RECORDS, 0, END)], async (asked) => {
    const packed = await new TimelineDecoder(() => new DoubleWorker('answers')).decode('/x');
    assert.equal(Timeline.from(packed).head, END - 1);
    await assert.rejects(new TimelineDecoder(() => new DoubleWorker('refuses')).decode('/x'), /no such session/);
    assert.deepEqual(asked, []);
    const worker = new DoubleWorker('breaks');
    const decoder = new TimelineDecoder(() => worker);
    assert.equal((await decoder.decode('/y')).head, END - 1);
    assert.equal(worker.terminated, true);
    assert.equal((await decoder.decode('/z')).head, END - 1);
    assert.deepEqual(asked, ['/y', '/z']);
  });
});

test('a refusal is told in the words of the server', async () => {
  const source = serverSource();
  await answering(() => [404, { error: "no session 'x'" }], () => assert.rejects(source.timeline('x'), /no session 'x'/));
  await answering(() => [500, '<html>'], () => assert.rejects(source.sessions(), /The server answered 500/));
});

test('bodies and questions go to the addresses of the server', async () => {
  const source = serverSource();
  const said = { message: { role: 'user', content: 'x' }, parts: [['text', ['content']]] };
  await answering(() => [200, [said, { message: null, parts: [] }]], async (asked) => {
    const found = await source.bodies('s', [at(3), { position: 4, index: 2 }]);
    assert.deepEqual(found, [said.message, null]);
    assert.deepEqual(partsOf(found[0]).map(({ kind, value }) => [kind, value]), [['text', 'x']]);
    assert.deepEqual(asked, ['/api/s/s/bodies?at=3.0,4.2&parts=1']);
  });
  await answering(() => [200, [['Never do it.']]], async (asked) => {
    assert.deepEqual(await source.demands('s', [at(3)]), [['Never do it.']]);
    assert.deepEqual(asked, ['/api/s/s/demands?at=3.0']);
  });
  await answering(() => [200, [[[['content'], ['x']]], null]], async (asked) => {
    assert.deepEqual(await source.rendered('s', [at(3), at(4)]), [[[['content'], ['x']]], null]);
    assert.deepEqual(asked, ['/api/s/s/rendered?at=3.0,4.0']);
  });
  assert.equal(sessionPlace('s', 'why', { number: 3, position: 0, turn: null }), '/api/s/s/why?number=3&position=0');
});
