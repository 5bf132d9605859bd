"""Probes in the inspector's page: what it paints and when, and how long it keeps the browser busy.

Chromium runs headless without a GPU, so canvases are drawn by the processor. Nothing is throttled
unless a row says so.
"""

from __future__ import annotations

from typing import Final

from playwright.async_api import Page

NOTE: Final = """
window.longTasks = [];
new PerformanceObserver((list) => {
  for (const entry of list.getEntries()) window.longTasks.push(entry.duration);
}).observe({ type: 'longtask', buffered: true });
window.drawnAt = 0;
for (const name of ['fill', 'fillRect', 'stroke', 'drawImage', 'putImageData']) {
  const draw = CanvasRenderingContext2D.prototype[name];
  CanvasRenderingContext2D.prototype[name] = function (...given) {
    if (this.canvas.closest?.('ctx-river')) {
      window.drawnAt = performance.now();
      window.firstDrawnAt ??= window.drawnAt;
    }
    return draw.apply(this, given);
  };
}
"""
"""Runs before the page's own scripts: notes long tasks, and when the river was drawn last."""

QUIET_MS: Final = 500

_RIVER: Final = f"""async () => {{
  const wait = (ms) => new Promise((done) => setTimeout(done, ms));
  while (!window.drawnAt || performance.now() - window.drawnAt < {QUIET_MS}) await wait(20);
  const paint = performance.getEntriesByName('first-contentful-paint')[0];
  return [paint.startTime, window.firstDrawnAt, window.drawnAt];
}}"""

STEP: Final = """async ([key, count]) => {
  const frame = () => new Promise((done) => requestAnimationFrame(done));
  const after = () => new Promise((done) => {
    const channel = new MessageChannel();
    channel.port1.onmessage = () => done();
    channel.port2.postMessage(0);
  });
  const taken = [];
  window.longTasks.length = 0;
  for (let step = 0; step < count; step++) {
    // The frame is asked for first, so its callback is the first of the frame.
    const next = frame();
    const began = performance.now();
    document.body.dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: true }));
    const handled = performance.now();
    await next;
    const drawing = performance.now();
    await after();
    taken.push(handled - began + performance.now() - drawing);
  }
  return taken;
}"""
"""The work of each of so many presses of a key: its handlers, and the frame behind them."""

JUMP: Final = """async (count) => {
  const { place } = await import('/page/place.js');
  const { timeline, setCursor } = await import('/page/state.js');
  const frame = () => new Promise((done) => requestAnimationFrame(done));
  const busy = () => document.querySelector('ctx-sent [aria-busy=true]') !== null;
  const positions = timeline.peek().requests.count;
  const taken = [];
  let random = 1;
  for (let jump = 0; jump < count; jump++) {
    random = (random * 48271) % 2147483647;
    const began = performance.now();
    setCursor(random % positions);
    await frame();
    while (busy()) await frame();
    taken.push(performance.now() - began);
  }
  return taken;
}"""
"""Milliseconds until the view of a request anywhere is there with its texts, of so many."""


async def painted(page: Page) -> tuple[float, float, float]:
    """Milliseconds to the first paint, to the river's first stroke, and to its last."""
    first, began, done = await page.evaluate(_RIVER)
    return first, began, done


async def throttled(page: Page, times: float) -> None:
    """Make the page's processor so many times slower."""
    devtools = await page.context.new_cdp_session(page)
    await devtools.send("Emulation.setCPUThrottlingRate", {"rate": times})
    await devtools.detach()


async def memory(page: Page) -> float:
    """Megabytes that the page's scripts and document hold, after a collection."""
    devtools = await page.context.new_cdp_session(page)
    await devtools.send("HeapProfiler.enable")
    await devtools.send("HeapProfiler.collectGarbage")
    usage = await devtools.send("Runtime.getHeapUsage")
    await devtools.detach()
    held = sum(
        usage.get(kind, 0.0) for kind in ("usedSize", "embedderHeapUsedSize", "backingStorageSize")
    )
    return float(held) / 1e6
