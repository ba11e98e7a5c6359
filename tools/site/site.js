// What a search result shows of a page is prose, not code.
document.addEventListener("DOMContentLoaded", () => {
  if (typeof Search === "undefined" || !Search.htmlToText) return;
  const text = Search.htmlToText;
  Search.htmlToText = (page, anchor) => {
    const parsed = new DOMParser().parseFromString(page, "text/html");
    parsed.querySelectorAll("div.highlight, div.cell_output, mjx-container").forEach((block) => block.remove());
    return text(parsed.documentElement.outerHTML, anchor);
  };
  // Each page once, at its best hit; the best comes last. An index term leads to the page, not to its mark.
  const perform = Search._performSearch;
  Search._performSearch = (...query) => {
    const seen = new Set();
    const once = perform(...query).reverse().filter(([page]) => !seen.has(page) && seen.add(page));
    return once.map((hit) => hit.with(2, hit[2].startsWith("#index-") ? "" : hit[2])).reverse();
  };
});
// What is wider than the page is scrolled, by the keyboard too.
document.addEventListener("DOMContentLoaded", () => {
  document.querySelectorAll("article pre, .table-wrapper, .api, div.cell_output, mjx-container").forEach((box) => {
    if (box.scrollWidth > box.clientWidth && /auto|scroll/.test(getComputedStyle(box).overflowX)) box.tabIndex = 0;
  });
});
