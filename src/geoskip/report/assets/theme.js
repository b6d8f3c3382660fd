// Follows the system's theme or uses the opposite one: every click changes what is seen.
function setUpTheme() {
  const button = byId('theme'), dark = matchMedia('(prefers-color-scheme: dark)'), signs = { system: '◐', light: '☀', dark: '☾' };
  let chosen = 'system';
  const system = () => (dark.matches ? 'dark' : 'light');
  const apply = () => {
    if (chosen === 'system') delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = chosen;
    button.textContent = signs[chosen];
    button.setAttribute('aria-label', `Theme: ${chosen}`);
  };
  button.addEventListener('click', () => {
    const next = (chosen === 'system' ? system() : chosen) === 'dark' ? 'light' : 'dark';
    chosen = next === system() ? 'system' : next;
    apply();
  });
  dark.addEventListener('change', apply);
  apply();
}
