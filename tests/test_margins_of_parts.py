"""A margin for one of several scores, or for one task: in the shell and in Python."""

import re

import numpy as np
import pytest

from invar_nb import Scores, UsageError, page_data, study
from invar_nb.shell.cli import main

BASE, TUNED = (str(page_data("lm_eval") / name) for name in ("base", "tuned"))


def said(capsys, tmp_path, *options):
    "(exit code, all that was printed) of a comparison of the folders of lm-eval."
    code = main(["compare", BASE, TUNED, *options, "--out", str(tmp_path / "r"), "--force"])
    printed = capsys.readouterr()
    return code, " ".join((printed.out + printed.err).split())


def test_each_of_several_scores_has_a_margin_in_its_own_unit(capsys, tmp_path):
    options = ["--margin", "shared=0.2", "--margin", "exact_match=40%"]
    code, text = said(capsys, tmp_path, *options)
    assert code == 0, text
    margins = re.search(r"Margins: (.*?)\. (?:If|Report|With|No)", text)[1]
    assert "0.2 for shared" in margins and "40 points for exact_match" in margins


def test_a_task_has_a_margin_that_no_other_task_gets(capsys, tmp_path):
    code, text = said(capsys, tmp_path, "--margin", "invar_choices=30%")
    assert code == 0, text
    assert "30 points for accuracy (acc)" in text and "2 points for exact_match" in text


def test_a_margin_of_score_is_refused_for_several_and_its_cure_works(capsys, tmp_path):
    "It disarmed the gate of a second score: 0.5 was 50 points of exact match."
    code, text = said(capsys, tmp_path, "--margin", "score=0.5")
    assert code == 2 and "score=0.5 for shared, exact_match" in text
    first, second = re.findall(r"--margin (\w+=0\.5)", text)
    for cure in (first, second):
        code, text = said(capsys, tmp_path, "--margin", cure)
        assert code == 0, text


def test_the_cure_of_no_margin_names_a_score_and_is_taken(capsys, tmp_path):
    _, text = said(capsys, tmp_path)
    option = re.search(r"say (--margin shared=)NUMBER", text)[1]
    code, text = said(capsys, tmp_path, *f"{option}0.05".split())
    assert code == 0 and "0.05 for shared" in text, text


def arms_of(name, scale, seed=3):
    "A pair of scores called `name`, whose candidate is a little worse."
    values = np.random.default_rng(seed).uniform(0.2, 0.9, 40) * scale
    return [
        Scores(ids=range(40), values=values - change, score=name, better="higher")
        for change in (0, 0.001 * scale)
    ]


def test_margins_of_scores_and_parts_in_python():
    parts = {"quiz": arms_of("f1", 1), "speed": arms_of("points", 100)}
    arms = {
        (name, part): pair_of_arms[i]
        for part, pair_of_arms in parts.items()
        for i, name in enumerate(("baseline", "new"))
    }

    def margins(given):
        return {row.key.part: row.margin for row in study(arms, margin=given)}

    assert margins({"points": 5}) == {"quiz": 0.02, "speed": 5}
    assert margins({"quiz": 0.1, "points": 5}) == {"quiz": 0.1, "speed": 5}
    assert margins({"score": 0.1, "points": 5}) == {"quiz": 0.1, "speed": 5}
    with pytest.raises(UsageError, match="a margin must name its score"):
        margins({"score": 0.1})
    with pytest.raises(UsageError, match="a margin's metric or part must be one of"):
        margins({"quizz": 0.1})


def test_margins_of_one_score_are_said_by_part_and_are_not_pooled():
    "Two margins for one title were not said at all, and pooled rows took the first."
    arms = {
        (name, part): arm
        for seed, part in enumerate(("quiz", "essay"))
        for name, arm in zip(("baseline", "new"), arms_of("f1", 1, seed), strict=True)
    }
    text = " ".join(str(study(arms, margin={"quiz": 0.1})).split())
    assert "Margins: 2 points for f1 of essay; 10 points for f1 of quiz." in text, text
    with pytest.raises(UsageError, match="pooling needs one margin of all parts"):
        study(arms, margin={"quiz": 0.1}, pooling="equal")
    assert study(arms, margin={"f1": 0.1}, pooling="equal")


def test_the_task_that_was_chosen_can_be_named_as_it_can_among_others(capsys, tmp_path):
    chosen = ["--task", "invar_words", "--margin", "invar_words=30%"]
    code, text = said(capsys, tmp_path, *chosen)
    assert code == 0 and "Equivalent" in text and "30 points" in text, text
    code, text = said(capsys, tmp_path, *chosen, "--margin", "exact_match=20%")
    assert code == 2 and "--margin must be given once per metric" in text, text


@pytest.mark.parametrize("name", ["invar_words", "exact_match", "score"])
def test_a_plan_takes_the_margin_of_a_study_under_the_names_of_a_comparison(
    capsys, tmp_path, name
):
    (tmp_path / "study.toml").write_text(f'[rules]\nmargin = {{{name} = "7%"}}\n')
    words = ["plan", BASE, TUNED, "--task", "invar_words", "--study", tmp_path / "study.toml"]
    assert main([*map(str, words), "--out", str(tmp_path / "p")]) == 0
    assert "equivalent within 7 points" in capsys.readouterr().out


def test_a_plan_refuses_two_margins_of_one_metric(capsys, tmp_path):
    (tmp_path / "study.toml").write_text(
        '[rules]\nmargin = {score = "7%", exact_match = "5%"}\n'
    )
    words = ["plan", BASE, TUNED, "--task", "invar_words", "--study", tmp_path / "study.toml"]
    assert main([*map(str, words), "--out", str(tmp_path / "p")]) == 2
    assert "--margin must be given once per metric" in capsys.readouterr().err
