// Scores of the search: Sphinx's own, times the weight of a page's section, so that a way in stands above the source.
const WEIGHT = WEIGHTS;
var Scorer = {
  score: ([page, title, anchor, description, score]) => score * (WEIGHT[page] || 1),
  objNameMatch: 11, objPartialMatch: 6, objPrio: { 0: 15, 1: 5, 2: -5 }, objPrioDefault: 0,
  title: 15, partialTitle: 7, term: 5, partialTerm: 2,
};
