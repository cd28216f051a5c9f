// The search of a page of sections (data-find): shows those that have every word, and their lines in the contents.
const field = document.getElementById('search');
const input = field?.querySelector('input');
const found = document.getElementById('found');
const sections = [...document.querySelectorAll('[data-find]')].map((section) => ({
  section,
  text: section.textContent.toLowerCase(),
  line: document.querySelector(`nav a[href="#${section.id}"]`)?.parentElement,
}));
const headings = [...document.querySelectorAll('.beside h2')].filter((heading) => !heading.closest('[data-find]'));
if (field && input) {
  field.hidden = false;
  input.addEventListener('input', () => {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    let count = 0;
    for (const { section, text, line } of sections) {
      const fits = words.every((word) => text.includes(word));
      section.hidden = !fits;
      if (line) line.hidden = !fits;
      if (fits) count += 1;
    }
    for (const heading of headings) heading.hidden = words.length > 0;
    found.textContent = words.length === 0 ? '' : count === 1 ? '1 place' : `${count} places`;
  });
  addEventListener('keydown', (event) => {
    if (event.key !== '/' || /^(?:input|textarea|select)$/i.test(document.activeElement?.tagName ?? '')) return;
    event.preventDefault();
    input.focus();
  });
}
