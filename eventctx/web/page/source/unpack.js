/**
 * Unpacks the page of an exported file: its style and its one script stand compressed in the file.
 * The policy of the file names the hashes of both, so nothing else can run. Until then, and where it
 * fails, the file shows a sentence that says so.
 */
(async () => {
  const packed = atob(JSON.parse(document.getElementById('page')?.textContent ?? '""'));
  const bytes = Uint8Array.from(packed, (character) => character.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream('gzip'));
  const [styleText, scriptText] = await new Response(stream).json();
  const style = document.createElement('style');
  style.textContent = styleText;
  const script = document.createElement('script');
  script.type = 'module';
  const types = /** @type {any} */ (globalThis).trustedTypes;
  const policy = types?.createPolicy('page', { createScript: (/** @type {string} */ text) => text });
  script.textContent = policy?.createScript(scriptText) ?? scriptText;
  document.getElementById('alone')?.remove();
  document.head.append(style, script);
})();
