// Light, dark, or as the system has it.
function setUpTheme() {
  const button = byId('theme'), choices = ['system', 'light', 'dark'], signs = { system: '◐', light: '☀', dark: '☾' };
  let chosen = 'system';
  const apply = () => {
    if (chosen === 'system') delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = chosen;
    button.textContent = signs[chosen];
    button.setAttribute('aria-label', `Colours: ${chosen === 'system' ? 'as the system' : chosen}`);
    document.dispatchEvent(new Event('theme'));
  };
  button.addEventListener('click', () => {
    chosen = choices[(choices.indexOf(chosen) + 1) % choices.length];
    apply();
  });
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', apply);
  apply();
}
