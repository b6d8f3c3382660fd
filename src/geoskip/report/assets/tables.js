// Clicking a heading sorts by its column: ascending, descending, and back to the original groups.
function sortKey(row, column) {
  const cell = row.cells[column];
  if (cell.dataset.value !== undefined) return Number(cell.dataset.value);
  const text = cell.textContent.trim(), number = Number(text.replaceAll(',', ''));
  return text && text !== '–' && !Number.isNaN(number) ? number : text === '–' ? Infinity : text;
}

function compare(a, b) {
  if (typeof a === 'number' && typeof b === 'number') return a === b ? 0 : a - b;
  return String(a).localeCompare(String(b), 'en', { numeric: true });
}

// The heading of each column; in a head with two rows, the lower cells belong to the headings that span several columns.
function columnsOf(table) {
  const [upper, lower] = table.tHead.rows, columns = [];
  let below = 0;
  for (const cell of upper.cells) {
    if (!lower || cell.rowSpan > 1) columns.push(cell);
    else for (let i = 0; i < cell.colSpan; i++) columns.push(lower.cells[below++]);
  }
  return columns;
}

function setUpTable(table) {
  const groups = [...table.tBodies].map((body) => [body, [...body.rows]]);
  const heads = columnsOf(table);
  const restore = () => groups.forEach(([body, rows]) => { table.append(body); body.append(...rows); });
  const sort = (column, sign) => {
    const rows = groups.flatMap(([, members]) => members);
    rows.sort((a, b) => sign * compare(sortKey(a, column), sortKey(b, column)));
    groups.forEach(([body]) => body.remove());
    groups[0][0].append(...rows);
    table.append(groups[0][0]);
  };
  heads.forEach((head, column) => {
    const button = make('button', { type: 'button' }, ...head.childNodes);
    head.append(button);
    button.addEventListener('click', () => {
      const next = { none: 'ascending', ascending: 'descending', descending: 'none' }[head.getAttribute('aria-sort') ?? 'none'];
      heads.forEach((other) => other.removeAttribute('aria-sort'));
      if (next === 'none') return restore();
      head.setAttribute('aria-sort', next);
      sort(column, next === 'ascending' ? 1 : -1);
    });
  });
}
