// What a search result shows of a page is prose, not code.
document.addEventListener("DOMContentLoaded", () => {
  if (typeof Search === "undefined" || !Search.htmlToText) return;
  const text = Search.htmlToText;
  Search.htmlToText = (page, anchor) => {
    const parsed = new DOMParser().parseFromString(page, "text/html");
    parsed.querySelectorAll("div.highlight, div.cell_output, mjx-container").forEach((block) => block.remove());
    return text(parsed.documentElement.outerHTML, anchor);
  };
});
// What is wider than the page is scrolled, by the keyboard too.
document.addEventListener("DOMContentLoaded", () => {
  document.querySelectorAll("article pre, .table-wrapper, .api, div.cell_output, mjx-container").forEach((box) => {
    if (box.scrollWidth > box.clientWidth && /auto|scroll/.test(getComputedStyle(box).overflowX)) box.tabIndex = 0;
  });
});
