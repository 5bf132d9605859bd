/**
 * Sets the theme that a person chose, before anything is painted; without a choice the system's
 * theme applies. An exported file holds this script as it is.
 */
try {
  const { theme } = JSON.parse(localStorage.getItem('eventctx.page') ?? '{}');
  if (theme === 'light' || theme === 'dark') document.documentElement.style.colorScheme = theme;
} catch {
  // The browser keeps nothing for this page.
}
