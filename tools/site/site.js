// What is wider than the page is scrolled, by the keyboard too.
const reachable = () => {
  document.querySelectorAll("article pre, .table-wrapper, .api, div.cell_output, mjx-container").forEach((box) => {
    if (box.scrollWidth > box.clientWidth && /auto|scroll/.test(getComputedStyle(box).overflowX)) box.tabIndex = 0;
  });
};
document.addEventListener("DOMContentLoaded", reachable);

// On a narrow page the sentences that a program printed are wrapped; its tables, whose columns
// stand two spaces apart, are not. An option such as --margin and a number with its % stay whole.
const hasColumns = (line) => /\S {2,}\S|^ {5}/.test(line);
const firstWord = (line) => line.split(" ")[0];
const goesOn = (line, next) => /^\S/.test(next || "") && !hasColumns(next) && firstWord(next) !== firstWord(line)
  && line.length >= 75 && line.length <= 100 && !/^\$|[.:\\]$/.test(line);
const keepWhole = (node) => {
  if (node.nodeType !== Node.TEXT_NODE) return node.childNodes.forEach(keepWhole);
  const words = node.data.split(/([-+]?\d[\d.,]*\s%|-[\w-]{1,30})/);
  if (words.length > 1) node.replaceWith(...words.map((word, k) => (k % 2 ? span("word", word) : word)));
};
const span = (name, text) => Object.assign(document.createElement("span"), { className: name, textContent: text });
// Each line of a command is an element, so that its end stands in where it is wrapped.
const intoLines = (pre) => {
  const lines = [span("line", "")];
  [...pre.childNodes].forEach((node) => {
    const texts = node.nodeType === Node.TEXT_NODE ? node.data.split("\n") : [node];
    texts.forEach((part, k) => {
      if (k) { lines.at(-1).append("\n"); lines.push(span("line", "")); }
      lines.at(-1).append(part);
    });
  });
  pre.replaceChildren(...lines.filter((line, k) => line.textContent || k < lines.length - 1));
};
// Whether most cells beside the first column begin with a number: rows of the texts of cells.
const isOfNumbers = (rows) => {
  const texts = rows.flatMap((row) => row.slice(1)).map((text) => text.trim()).filter(Boolean);
  return texts.filter((text) => /^[-+−±]?\d/.test(text)).length > texts.length / 2;
};
document.addEventListener("DOMContentLoaded", () => {
  document.querySelectorAll("div.cell_output pre").forEach((pre) => {
    if ([...pre.children].some((child) => child.textContent)) return;  // it has colours
    const lines = pre.textContent.split("\n");
    const parts = [];
    for (let k = 0; k < lines.length; k++) {
      if (k) parts.push("\n");
      const group = [lines[k]];
      while (!hasColumns(lines[k]) && goesOn(lines[k], lines[k + 1])) group.push(lines[++k]);
      const name = group.length > 1 ? "said joined" : "said";
      parts.push(hasColumns(group[0]) ? group[0] : span(name, group.join("\n")));
    }
    pre.replaceChildren(...parts);
    pre.classList.add("read");
  });
  document.querySelectorAll("article code.literal .pre").forEach((word) => word.classList.toggle("long", word.textContent.length > 48));
  document.querySelectorAll("div.highlight-shell pre").forEach(intoLines);
  document.querySelectorAll("div.highlight-shell pre, pre .said").forEach((box) => [...box.childNodes].forEach(keepWhole));
  // A table of four columns becomes a list there; its cells say which column they are of. One of
  // numbers stays a table, since its columns are compared, and is scrolled.
  document.querySelectorAll("table.docutils").forEach((table) => {
    const heads = [...table.querySelectorAll("thead th")].map((head) => head.textContent);
    if (heads.length < 4) return;
    const rows = [...table.querySelectorAll("tbody tr")].map((row) => [...row.cells]);
    if (isOfNumbers(rows.map((row) => row.map((cell) => cell.textContent)))) return table.classList.add("of-numbers");
    table.classList.add("broad", heads[0] ? "named" : "numbered");
    const firstLabelled = heads[0] ? 1 : 2;  // beside a number stands the name of its row
    rows.forEach((row) => row.slice(firstLabelled).forEach((cell, k) => {
      if (cell.textContent.trim()) cell.dataset.label = heads[k + firstLabelled];
    }));
  });
  // A printed table that is a little too wide has smaller letters; a wider one is scrolled. A
  // table of intervals that is too wide wraps its cells, if that is enough.
  document.fonts.ready.then(() => {
    if (!matchMedia("(max-width: 46em)").matches) return;
    const isTooWide = (table) => table.scrollWidth > table.parentElement.clientWidth + 1;
    [...document.querySelectorAll("table.of-numbers")].filter(isTooWide).forEach((table) => {
      table.classList.replace("of-numbers", "wrapped");
      if (isTooWide(table)) table.classList.replace("wrapped", "of-numbers");
    });
    document.querySelectorAll("div.cell_output pre").forEach((pre) => {
      const fits = pre.clientWidth / pre.scrollWidth;
      if (fits < 1 && fits >= 0.82) pre.style.fontSize = `${fits * parseFloat(getComputedStyle(pre).fontSize)}px`;
    });
    reachable();
  });
});

// An option of a command has an address; a click on its name shows it.
document.addEventListener("DOMContentLoaded", () => {
  document.querySelectorAll("li span[id] > code").forEach((code) => {
    const link = Object.assign(document.createElement("a"), { className: "to-itself", href: `#${code.parentElement.id}` });
    code.replaceWith(link);
    link.append(code);
  });
});

// The source of the library is folded. One switch opens it on every page; `?code=1` does for one look.
document.addEventListener("DOMContentLoaded", () => {
  const kept = (...value) => {
    try {
      return value.length ? localStorage.setItem("show-code", value[0]) : localStorage.getItem("show-code");
    } catch { return null; }  // a browser that keeps nothing
  };
  const button = document.querySelector("button.show-code");
  const show = (isOpen) => {
    document.querySelectorAll("details.code").forEach((fold) => { fold.open = isOpen; });
    if (button) button.setAttribute("aria-pressed", isOpen);
    reachable();
  };
  if (new URLSearchParams(location.search).get("code") === "1" || kept() === "yes") show(true);
  if (button) button.addEventListener("click", () => {
    const isOpen = button.getAttribute("aria-pressed") !== "true";
    kept(isOpen ? "yes" : "no");
    show(isOpen);
  });
  // A link into a fold opens it.
  const reveal = () => {
    const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (!target) return;
    let fold = target.closest("details");
    if (!fold) return;
    for (; fold; fold = fold.parentElement.closest("details")) fold.open = true;
    target.scrollIntoView();
  };
  reveal();
  window.addEventListener("hashchange", reveal);
  // Paper has no folds.
  let closed = [];
  window.addEventListener("beforeprint", () => {
    closed = [...document.querySelectorAll("details:not([open])")];
    closed.forEach((fold) => { fold.open = true; });
  });
  window.addEventListener("afterprint", () => closed.forEach((fold) => { fold.open = false; }));
});
