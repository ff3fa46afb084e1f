// Values under the pointer, in all plots at once; which kinds of events are listed. The page is whole without it.
(() => {
  'use strict';
  const data = JSON.parse(document.getElementById('data').textContent);
  const tip = document.getElementById('tip');
  const figures = [...document.querySelectorAll('figure[data-plot]')];
  const last = data.times.length - 1;
  const end = last < 0 ? 0 : data.times[last];
  if (end <= 0) return;

  const time = s => {
    const two = n => String(Math.floor(n)).padStart(2, '0');
    const clock = `${Math.floor(s % 86400 / 3600)}:${two(s % 3600 / 60)}:${two(s % 60)}`;
    return s >= 86400 ? `${Math.floor(s / 86400)} d ${clock}` : clock;
  };
  // A value holds until the next sample.
  const sampleAt = t => {
    let low = 0, high = last;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (data.times[middle] <= t) low = middle; else high = middle - 1;
    }
    return low;
  };
  const drawing = figure => [...figure.querySelectorAll('svg')].find(svg => svg.getClientRects().length > 0);
  const sides = svg => [Number(svg.dataset.left), Number(svg.dataset.right)];
  const element = (tag, text, parent, kind) => {
    const made = document.createElement(tag);
    made.textContent = text;  // never as HTML: names are anybody's
    if (kind) made.className = kind;
    parent.append(made);
    return made;
  };
  const swatch = (colour, parent) => {
    const svg = document.createElementNS('http://www.w3.org/2000/svg', 'svg');
    const box = document.createElementNS('http://www.w3.org/2000/svg', 'rect');
    svg.setAttribute('viewBox', '0 0 10 10');
    for (const [key, value] of [['class', 'f' + colour], ['width', 10], ['height', 10], ['rx', 2]]) box.setAttribute(key, value);
    svg.append(box);
    parent.append(svg);
  };

  const fill = (plot, index, t) => {
    tip.replaceChildren();
    element('b', time(data.times[index]), tip);
    let sum = 0;
    for (const line of plot.lines) {
      sum += line.values[index];
      const row = element('div', '', tip, 'row');
      swatch(line.colour, row);
      element('span', line.name, row);
      element('i', line.values[index].toLocaleString('en', {maximumFractionDigits: 2}), row);
    }
    if (plot.stacked && plot.lines.length > 1) {
      const row = element('div', '', tip, 'row');
      element('span', 'all', row);
      element('i', sum.toLocaleString('en'), row);
    }
    if (!plot.marked) return;
    const near = data.faults.filter(fault => Math.abs(fault[0] - t) <= end / 150);
    for (const fault of near.slice(0, 3)) element('div', `${time(fault[0])} ${fault[1]}`, tip, 'fault');
    if (near.length > 3) element('div', `and ${near.length - 3} more`, tip, 'fault');
  };

  const hide = () => {
    tip.hidden = true;
    for (const cross of document.querySelectorAll('.p-cross')) cross.setAttribute('visibility', 'hidden');
  };
  // How far the page was scrolled when the tip was shown: a browser tells of scrolling a frame late, so a tip that was
  // shown in between stands where it should.
  let scrolled = 0;
  // `beside`: where the pointer is, in the window.
  const show = (figure, t, beside) => {
    scrolled = scrollY;
    const index = sampleAt(t);
    for (const other of figures) {
      const svg = drawing(other), [left, right] = sides(svg), cross = svg.querySelector('.p-cross');
      cross.setAttribute('transform', `translate(${left + (right - left) * t / end} 0)`);
      cross.setAttribute('visibility', 'visible');
    }
    fill(data.plots[figure.dataset.plot], index, t);
    tip.hidden = false;
    const size = tip.getBoundingClientRect();
    const x = beside.x + 14 + size.width < innerWidth ? beside.x + 14 : Math.max(4, beside.x - 14 - size.width);
    tip.style.left = `${x}px`;
    tip.style.top = `${Math.max(4, Math.min(beside.y + 14, innerHeight - size.height - 4))}px`;
  };

  for (const figure of figures) {
    let at = 0;
    const point = event => {
      const svg = drawing(figure), box = svg.getBoundingClientRect(), [left, right] = sides(svg);
      const x = (event.clientX - box.left) / box.width * svg.viewBox.baseVal.width;
      if (x < left - 8 || x > right + 8) return hide();
      at = Math.min(end, Math.max(0, (x - left) / (right - left) * end));
      show(figure, at, {x: event.clientX, y: event.clientY});
    };
    figure.addEventListener('pointermove', point);
    figure.addEventListener('pointerdown', point);
    figure.addEventListener('pointerleave', hide);
    figure.addEventListener('blur', hide);
    figure.addEventListener('keydown', event => {
      if (event.key === 'Escape') return hide();
      const step = {ArrowLeft: -1, ArrowRight: 1}[event.key];
      if (!step) return;
      event.preventDefault();
      const index = Math.min(last, Math.max(0, sampleAt(at) + step * (event.shiftKey ? 20 : 1)));
      at = data.times[index];
      const svg = drawing(figure), box = svg.getBoundingClientRect(), [left, right] = sides(svg);
      const x = box.left + (left + (right - left) * at / end) / svg.viewBox.baseVal.width * box.width;
      show(figure, at, {x, y: box.top + box.height / 3});
    });
  }
  addEventListener('scroll', () => scrollY !== scrolled && hide(), {passive: true});

  for (const box of document.querySelectorAll('.kinds input')) {
    const apply = () => {
      for (const row of document.querySelectorAll(`tr[data-kind="${box.value}"]`)) row.hidden = !box.checked;
    };
    box.addEventListener('change', apply);
    apply();  // a browser keeps the marks of a page that is loaded again
  }
})();
