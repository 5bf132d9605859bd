/**
 * Sets the theme that a person chose, before anything is painted; without a choice the system's
 * theme applies. Then says so when a script of the page fails before the page is there: one that does
 * not arrive would leave it empty. An exported file holds this script as it is.
 */
try {
  const { theme } = JSON.parse(localStorage.getItem('eventctx.page') ?? '{}');
  if (theme === 'light' || theme === 'dark') document.documentElement.style.colorScheme = theme;
} catch {
  // The browser keeps nothing for this page.
}
addEventListener('error', (event) => {
  const isScript = event.target === window || event.target instanceof HTMLScriptElement;
  if (!isScript || document.querySelector('ctx-app, [role=alert]') !== null) return;
  const said = document.createElement('p');
  said.setAttribute('role', 'alert');
  said.className = 'message-box';
  said.textContent = 'This page did not load whole. Reload it.';
  document.body.append(said);
}, true);
