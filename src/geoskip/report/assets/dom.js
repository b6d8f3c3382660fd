// Creates elements. Text is always set as text, never as markup.
const SVG = 'http://www.w3.org/2000/svg';
const byId = (id) => document.getElementById(id);

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
    else if (value !== null && value !== false) element.setAttribute(name, value === true ? '' : value);
  }
  element.append(...children.filter((child) => child !== null));
  return element;
}

const make = (tag, attributes = {}, ...children) => fill(document.createElement(tag), attributes, children);
const draw = (tag, attributes = {}, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

function options(select, names, chosen = 0) {
  select.replaceChildren(...names.map((name, number) => make('option', { value: number }, name)));
  select.selectedIndex = chosen;
  // A select with a single option is hidden.
  select.closest('label').hidden = names.length < 2;
}

// A setting, and a result with the decimals of the tables, or else with three digits.
const short = (value) => value.toLocaleString('en', { maximumSignificantDigits: 3 });
const figure = (value, decimals = null) => value.toLocaleString('en', decimals === null
  ? { minimumSignificantDigits: 3, maximumSignificantDigits: 3 } : { minimumFractionDigits: decimals, maximumFractionDigits: decimals });

function once(action) {
  let waiting = false;
  return () => {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => { waiting = false; action(); });
  };
}

// Calls back once: when an element is near the screen, when the browser is idle, or before printing. The function that it returns
// calls back at once.
function whenNear(element, action) {
  let done = false;
  const act = () => { if (!done) { done = true; observer.disconnect(); action(); } };
  const observer = new IntersectionObserver((entries) => { if (entries.some((entry) => entry.isIntersecting)) act(); }, { rootMargin: '300px' });
  observer.observe(element);
  setTimeout(() => (window.requestIdleCallback ?? ((f) => f()))(act), 1500);
  window.addEventListener('beforeprint', act);
  return act;
}
