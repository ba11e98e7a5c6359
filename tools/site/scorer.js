// The search: Sphinx's own, times the weight of a page, after the pages that answer what was asked.
const WEIGHT = WEIGHTS;  // page -> weight: a way in stands above the source, an index of names below all
const ASKED = QUESTIONS;  // page, or page#anchor, -> terms and questions that it answers
const TERM_ANCHORS = TERMS;  // term of the glossary -> the anchor of its entry
const OPTION_ANCHORS = OPTIONS;  // option -> the anchors of its entries, in the order of the commands
const SMALL_WORDS = new Set((
  "a about across all an and any are as at be best by calculate can choose compare compute do does for from get has have how " +
  "i if in into is it its make me mean means much my need needed of on one or our should so some take than that the their " +
  "then there this to two use using want was we what when where which who why will with write you your"
).split(" "));
var Scorer = {
  score: ([page, title, anchor, description, score]) => score * (WEIGHT[page] ?? 0.5),
  objNameMatch: 11, objPartialMatch: 6, objPrio: { 0: 15, 1: 5, 2: -5 }, objPrioDefault: 0,
  title: 15, partialTitle: 7, term: 5, partialTerm: 2,
};
const stem = (word) => new Stemmer().stemWord(word);
// British and American spellings, and words with and without a hyphen, are one word.
const SPELLINGS = [
  [/\bnon-?\s*(?=inferior)/g, "non"], [/\bp[-\s]?value/g, "pvalue"], [/colou?r[-\s]?blind/g, "colorblind"],
  [/(col|neighb|behavi|lab|fav)our/g, "$1or"], [/([a-z]{3})is(?=(?:e|ed|es|er|ing|ations?)\b)/g, "$1iz"],
];
const spelled = (text) => SPELLINGS.reduce((done, [pattern, by]) => done.replace(pattern, by), text);
const everyWordOf = (text) => splitQuery(spelled(text.toLowerCase().replaceAll("&", "")));  // W&B is a word
const wordsOf = (text) => {
  const words = everyWordOf(text);
  const large = words.filter((word) => !SMALL_WORDS.has(word));
  return [...new Set((large.length ? large : words).map(stem))];
};
const isSame = (a, b) => a === b || (Math.min(a.length, b.length) > 4 && (a.startsWith(b) || b.startsWith(a)));

// The share of all words, small ones included, that two texts have in common. It decides between
// "multiple comparisons" and "multiple comparisons with the best", which are otherwise the same.
const TIE_BREAK = 0.05;
const commonShare = (a, b) => {
  const [first, second] = [a, b].map((text) => new Set(everyWordOf(text).map(stem)));
  const common = [...first].filter((word) => second.has(word)).length;
  return common / (first.size + second.size - common);
};

// Page -> how well what it answers agrees with a query, and at which anchor: 1 for the same words, rare words count for more.
const phrases = () => {
  const known = Object.entries(ASKED).flatMap(([place, texts]) => {
    const [page, anchor] = place.split("#");
    return texts.map((text) => ({ page, anchor, text, words: wordsOf(text) }));
  });
  const counts = new Map();
  known.forEach(({ words }) => words.forEach((word) => counts.set(word, (counts.get(word) || 0) + 1)));
  const worth = (word) => Math.log(1 + known.length / (counts.get(word) || 1));
  return { known, worth };
};
let parsed = null;
const answering = (query) => {
  parsed = parsed || phrases();
  const sum = (words) => words.reduce((total, word) => total + parsed.worth(word), 0);
  const asked = wordsOf(query);
  const best = new Map();
  parsed.known.forEach(({ page, anchor, text, words }) => {
    const hits = words.filter((word) => asked.some((other) => isSame(word, other)));
    const found = asked.filter((word) => words.some((other) => isSame(word, other)));
    const agreement = (sum(hits) + sum(found)) / (sum(words) + sum(asked));
    if (agreement <= 0.45) return;
    const rank = agreement + TIE_BREAK * commonShare(text, query);
    if (rank > (best.get(page)?.rank ?? 0)) best.set(page, { rank, anchor });
  });
  return best;
};

// The anchor of the glossary's entry that a query names; undefined if it names none.
const entryOf = (query) => {
  const asked = wordsOf(query).sort().join(" ");
  const [, anchor] = Object.entries(TERM_ANCHORS).find(([term]) => wordsOf(term).sort().join(" ") === asked) ?? [];
  return anchor;
};

// A stemmed word as the site's text spells it where that has the other spelling only.
const inIndex = (word) => [Search._index.terms, Search._index.titleterms].some((words) => Object.hasOwn(words ?? {}, word));
const otherSpelling = (word) =>
  [[/iz$/, "is"], [/is$/, "iz"], [/or$/, "our"], [/our$/, "or"]]
    .map(([pattern, by]) => word.replace(pattern, by)).find((other) => other !== word && inIndex(other)) ?? word;

// The first text of some length, cut at a word where it is long; "" where there is none.
const LONGEST_EXCERPT = 240;
const excerptOf = (texts) => {
  const whole = texts.map((text) => text.replace(/\\[()]/g, "").replace(/\s+/g, " ").trim()).find((text) => text.length >= 25) ?? "";
  if (whole.length <= LONGEST_EXCERPT) return whole;
  return `${whole.slice(0, LONGEST_EXCERPT).replace(/[\s,;:]+\S*$/, "")} …`;
};

if (typeof Search !== "undefined") {
  // A search result shows the question below a page's title, or how a section begins: no code,
  // and no words from the middle of a sentence.
  Search.makeSearchSummary = (page, words, anchor) => {
    const whole = new DOMParser().parseFromString(page, "text/html");
    whole.querySelectorAll("script, style, .headerlink, details, div.cell, mjx-container, .beside").forEach((block) => block.remove());
    const main = whole.querySelector('[role="main"]');
    const place = (anchor && main?.querySelector(anchor)) || main;
    const lead = anchor ? [] : [...(place?.querySelectorAll(".lead") ?? [])];
    const text = excerptOf([...lead, ...(place?.querySelectorAll("p") ?? [])].map((block) => block.textContent));
    if (!text) return null;
    return Object.assign(document.createElement("p"), { className: "context", textContent: text });
  };
  // Excerpts for the first hits only: each is cut from the whole page, which has to be fetched.
  const EXCERPTS = 10;
  let shown = 0;  // hits of this query so far; Sphinx asks once for each, in their order
  if (typeof DOCUMENTATION_OPTIONS !== "undefined") {
    Object.defineProperty(DOCUMENTATION_OPTIONS, "SHOW_SEARCH_SUMMARY", { get: () => shown++ < EXCERPTS });
  }
  // What is said where nothing is found: there are no categories here.
  const NOTHING_FOUND = "No page has all these words. Try one or two of them, or look for the term in the glossary.";
  if (typeof Documentation !== "undefined") {
    const translated = Documentation.gettext;
    Documentation.gettext = (text, ...rest) =>
      text.startsWith("Your search did not match") ? NOTHING_FOUND : translated(text, ...rest);
  }
  const sectionTitle = (at, anchor) => {
    const [title] = Object.entries(Search._index.alltitles ?? {}).find(([, places]) =>
      places.some(([file, id]) => file === at && id === anchor)) ?? [];
    return title ? `${Search._index.titles[at]} > ${title}` : Search._index.titles[at];
  };
  const perform = Search._performSearch;
  Search._performSearch = (typed, terms, ...more) => {
    const query = typed.replaceAll("*", " asterisk ");  // the star at a claim
    shown = 0;
    const { docnames, titles, filenames } = Search._index;
    const answers = [...answering(query)].map(([page, { rank, anchor }]) => {
      const at = docnames.indexOf(page), score = 1000 * rank + (WEIGHT[page] ?? 0);
      return [page, anchor ? sectionTitle(at, anchor) : titles[at], anchor ? `#${anchor}` : "", null, score, filenames[at], "index"];
    });
    const entry = entryOf(query);
    if (entry) {
      const page = "glossary", at = docnames.indexOf(page);
      answers.push([page, sectionTitle(at, entry), `#${entry}`, null, 990, filenames[at], "index"]);
    }
    const [option] = query.toLowerCase().match(/--[a-z][a-z-]*/) ?? [];
    for (const anchor of (OPTION_ANCHORS[option] ?? []).slice(0, 1)) {
      const page = "reference/command_line", at = docnames.indexOf(page);
      answers.push([page, `${option} · ${titles[at]}`, `#${anchor}`, null, 1e5, filenames[at], "index"]);
    }
    const small = new Set([...SMALL_WORDS].map(stem));
    const large = [...terms].filter((term) => !small.has(term));
    const lookUp = (words) => perform(query, new Set(words), ...more);
    let hits = lookUp(large.length ? large : terms);
    const others = large.map(otherSpelling);
    if (others.some((other, k) => other !== large[k])) hits = [...hits, ...lookUp(others)].sort((a, b) => a[4] - b[4]);
    if (!hits.length && !answers.length) hits = large.flatMap((word) => lookUp([word]));  // better some words than none
    // Each page once, at its best hit; the best comes last.
    const seen = new Set();
    const ranked = [...hits, ...answers.sort((a, b) => a[4] - b[4])];
    return ranked.reverse().filter(([page]) => !seen.has(page) && seen.add(page)).reverse();
  };
}
