"""Predictions: what the arm refuses, that no order decides anything, and what a file's columns are taken for."""

import decimal
import json
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from invar_nb.arms.arm import as_name, listed, natural_order
from invar_nb.arms.pair import pair
from invar_nb.arms.predictions import Predictions, as_labels, refuse_twins
from invar_nb.files.answers import (
    predictions_bytes,
    predictions_from_columns,
    read_predictions,
    write_predictions,
)
from invar_nb.foundations.refuse import ContractError, nearest
from invar_nb.report.doubts import other_scores

IDS, LABEL, SAID = ["a", "b", "c", "d"], ["yes", "no", "yes", "no"], ["yes", "no", "no", "no"]
COLUMNS = {"id": IDS, "label": LABEL, "prediction": SAID}
P = [[0.9, 0.1], [0.2, 0.8], [0.4, 0.6], [0.3, 0.7]]


def says(act, **options):
    with pytest.raises(ContractError) as caught:
        act(**options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def of_columns(**change):
    return predictions_from_columns(
        {k: v for k, v in (COLUMNS | change).items() if v is not None}
    )


# --- the arm --------------------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "change, part",
    [
        (dict(ids=[]), "must be an example"),
        (dict(ids=["a", "b", "a", "d"]), "'a' at index 0 and at index 2"),
        (dict(ids=["a", "b", True, "d"]), "id must be text"),
        (dict(ids=["a"]), "one entry for each id"),
        (dict(label=["yes", "no", 3.0, "no"]), "Write 3, not 3.0"),
        (dict(label=["yes", "no", None, "no"]), "Fill it in"),
        (dict(label=["yes"] * 3), "3 for 4 ids"),
        (dict(label="yesn"), "must be a sequence"),
        (dict(prediction=["yes", "no", "No", "no"]), "blanks or spelling"),
        (
            dict(prediction=["yes", "no", "nay", "no"], labels=("yes", "no")),
            "'nay' at index 2",
        ),
        (dict(prediction=None), "predictions or probabilities"),
        (dict(label=["u"] * 4, prediction=["v"] * 4), "share a value"),
        (dict(label=["u"] * 4, prediction=["u"] * 4), "at least two labels"),
        (dict(labels=("yes", "no", "yes")), "must be different"),
        (dict(labels=[str(i) for i in range(257)] + ["yes", "no"]), "at most 256"),
        (dict(confidence=[0.5, 0.5, 1.5, 0.5]), "1.5 at index 2. Pass probabilities"),
        (dict(confidence=[0.5, 0.5, float("nan"), 0.5]), "Find where it came from"),
        (dict(confidence=[0.5, 0.5, "0.5", 0.5]), "must be a number"),
        (dict(confidence=[0.5, 0.5, 10**400, 0.5]), "[0, 1]"),
        (dict(probabilities=P), "probabilities need labels"),
        (dict(probabilities=[[0.9, 0.1]], labels=("yes", "no")), "shape (1, 2) for 4 ids"),
        (dict(probabilities=[*P[:3], [0.3, 0.6]], labels=("yes", "no")), "A label is missing"),
        (dict(probabilities=[*P[:3], [0.333, 0.666]], labels=("yes", "no")), "six digits"),
        (dict(probabilities=P, labels=("no", "yes")), "most probable label"),
        (
            dict(probabilities=P, labels=("yes", "no"), confidence=[0.9, 0.8, 0.6, 0.6]),
            "0.6 where the probability is 0.7 at index 3",
        ),
        (dict(samples=[1] * 4), "belong together"),
        (dict(samples=[5] * 4, correct_samples=[1, 2, 6, 3]), "swapped"),
        (dict(samples=[5, None, 5, 5], correct_samples=[1] * 4), "neither goes alone"),
        (dict(samples=[0] * 4, correct_samples=[0] * 4), "at least 1"),
        (dict(clusters=["x", None, "y", "z"]), "None at index 1"),
        (dict(slices={"lang": ["en"]}), "one entry"),
        (dict(slices={"lang": ["en", [1], "de", None]}), "slice 'lang' must be text"),
        (dict(ambiguous="skip"), "'own_class', 'excluded'"),
        (dict(ambiguous="excluded"), "excluded label must be one of the labels"),
        (dict(provenance={"a": {1}}), "must be JSON"),
    ],
)
def test_an_arm_refuses(change, part):
    message = says(Predictions, **(dict(ids=IDS, label=LABEL, prediction=SAID) | change))
    assert part in message, message
    if "index" in part:
        message = says(
            Predictions,
            **(
                dict(
                    ids=IDS,
                    label=LABEL,
                    prediction=SAID,
                    places=[f"line {i + 2}" for i in range(4)],
                    where="x.csv",
                )
                | change
            ),
        )
        assert message.startswith(("x.csv: ", "x.csv")) and (
            "line" in message or "clusters" in message
        )


@settings(max_examples=60, deadline=None)
@given(st.permutations(range(4)), st.permutations(range(2)))
def test_no_order_of_rows_or_labels_decides(order, labels):
    p = np.array([[0.9, 0.1], [0.5, 0.5], [0.4, 0.6], [0.3, 0.7]])
    whole = Predictions(
        ids=IDS, label=LABEL, probabilities=p, labels=("yes", "no"), clusters=list("xxyy")
    )
    pick = lambda values: [values[i] for i in order]
    names = tuple(("yes", "no")[c] for c in labels)
    other = Predictions(
        ids=pick(IDS),
        label=pick(LABEL),
        probabilities=p[order][:, labels],
        labels=names,
        clusters=pick("xxyy"),
    )
    assert (
        other.prediction == whole.prediction == ("yes", "no", "no", "no")
        and other.data_id == whole.data_id
        and other.clusters == tuple("xxyy")
    )
    assert other.correct.tolist() == whole.correct.tolist() and whole.ties == 1


def test_an_arm_has_the_common_outside():
    arm = Predictions(
        ids=IDS,
        label=LABEL,
        prediction=SAID,
        slices={"lang": ["en", "de", None, "en"]},
        model="m",
        samples=[3, None, 3, 3],
        correct_samples=[1, None, 0, 3],
    )
    assert (arm.kind, arm.labels, arm.labels_from, arm.clusters, len(arm)) == (
        "answers",
        ("no", "yes"),
        "seen",
        None,
        4,
    ) and arm.correct.tolist() == [True, True, False, True]
    some = arm.take(~arm.correct)
    assert (
        some.ids == ("c",)
        and some.slices == {"lang": (None,)}
        and some.samples == (3,)
        and some.correct.tolist() == [False]
        and arm.counted.all()
    )
    wider = Predictions(
        ids=IDS, label=LABEL, prediction=["maybe", *SAID[1:]], slices=arm.slices
    )
    one, two = (p := pair(arm, wider)).baseline, p.candidate
    assert (
        one.labels == two.labels == ("maybe", "no", "yes")
        and one.true_index.tolist() == [2, 1, 2, 1]
        and arm.true_index.tolist() == [1, 0, 1, 0]
    )
    assert "labels must match" in says(lambda: pair(arm, wider.changed(labels_from="given")))
    without = Predictions(
        ids=IDS,
        label=["yes", "unsure", "yes", "no"],
        prediction=SAID,
        ambiguous="excluded",
        ambiguous_label="unsure",
    )
    assert without.counted.tolist() == [True, False, True, True]
    assert Predictions(
        ids=IDS, label=LABEL, prediction=SAID, confidence=np.float32([0.7, 0.1, 1, 0])
    ).confidence.tolist() == [0.7, 0.1, 1.0, 0.0]
    for other in (
        dict(label=["yes"] * 4),
        dict(slices={"lang": ["en"] * 4}),
        dict(prompt_digests=["1"] * 4),
    ):
        assert (
            Predictions(**(dict(ids=IDS, label=LABEL, prediction=SAID) | other)).data_id
            != Predictions(ids=IDS, label=LABEL, prediction=SAID).data_id
        )


def test_names():
    assert sorted(["10", "b", None, "9", "-2"], key=natural_order) == [
        "-2",
        "9",
        "10",
        "b",
        None,
    ]
    assert (
        [as_name(v, "label", "f", "0") for v in (True, 3, np.int64(4), "x")]
        == ["true", "3", "4", "x"]
        and nearest("LABLE ", ["id", "label"]) == "label"
        and nearest("zz", ["id"]) is None
    )
    for twins in (("Yes", "yes "), ("é", "e\u0301"), ("1", "1.0"), ("1e1", "10")):
        assert "spelling" in says(lambda twins=twins: refuse_twins(twins, "f"))
    refuse_twins(["yes", "no", "1", "10"], "f")
    assert listed("ab", most=1) == "'a' and 1 more" and as_labels([1, "b"], "f") == ("1", "b")


# --- columns --------------------------------------------------------------------------------------------------------------------------
def test_what_columns_are_taken_for():
    rows = 24
    columns = {
        "id": range(rows),
        "label": ["yes", "no"] * 12,
        "p:yes": [0.75] * rows,
        "p:no": ["0.25"] * rows,
        "language": ["en"] * rows,
        "tense": [i % 3 for i in range(rows)],
        "again": ["ja", "nein"] * 12,
        "score": [1] * rows,
        "raw": ["text"] * rows,
        "x": [i / 7 for i in range(rows)],
        "own": [f"o{i}" for i in range(rows)],
        "doc": [i // 4 for i in range(rows)],
        "one": ["a"] * rows,
        "nest": [[1]] * rows,
        "prompt": ["say"] * rows,
        "model": ["int4"] * rows,
        "checkpoint": ["c"] * rows,
        "decimal": ["0.5", "1.5"] * 12,
    }
    arm = predictions_from_columns(columns, cluster="doc")
    assert (
        arm.labels == ("yes", "no")
        and arm.prediction == ("yes",) * rows
        and arm.model == "int4"
        and arm.clusters[:1] == ("0",)
        and len(set(arm.clusters)) == 6
    )
    assert set(arm.slices) == {"language", "tense"} and len(set(arm.prompt_digests)) == 1
    assert arm.provenance["checkpoint"] == "c" and set(arm.provenance["ignored"]) == {
        "again",
        "score",
        "raw",
        "x",
        "own",
        "one",
        "nest",
        "decimal",
    }
    alike = predictions_from_columns(
        {
            "id": range(rows),
            "label": [0, 1] * 12,
            "prediction": [1] * rows,
            "p0": ["0.25"] * rows,
            "p1": [0.75] * rows,
            "price": [0.5] * rows,
            "prob": [1.5] * rows,
        }
    )
    assert [*other_scores(alike)] == [
        "Not read: p0, p1. Probabilities are called p_LABEL, one column for each label."
    ] and not [*other_scores(arm)]
    assert (
        set(predictions_from_columns(columns, slices="doc").slices) == {"language", "doc"}
        and predictions_from_columns(columns, model="other").model == "other"
    )
    assert predictions_from_columns(columns, labels=("no", "yes")).probabilities[
        0
    ].tolist() == [0.25, 0.75]


@pytest.mark.parametrize(
    "change, options, part",
    [
        ({"id": None}, {}, "column 'id'"),
        ({"label": None, "target": LABEL}, {}, "Did you mean 'target'?"),
        ({"label": None, "lable": LABEL}, {}, "'lable'"),
        ({"prediction": None, "pred": SAID}, {}, "'pred'"),
        ({"prediction": None, "probs": [{}] * 4}, {}, "column 'prediction'"),
        (
            {"confidence": ["0.5", "0,5", "1", "0"]},
            {},
            "'confidence' must be a finite number; got '0,5' (index 1). Write a decimal point: 0.5?",
        ),
        ({"confidence": [0.5]}, {}, "1 for 4 ids"),
        ({"model": ["x", "x", "y", "x"]}, {}, "one file is one arm"),
        ({"p:yes": [0.9] * 4, "probabilities": [{}] * 4}, {}, "given once"),
        (
            {"probabilities": [{"yes": 0.5, "no": 0.5}] * 3 + [{"yes": 1.0}]},
            {},
            "at index 3, where index 0 has",
        ),
        ({"probabilities": [1] * 4}, {}, "must map the same labels"),
        ({}, {"slices": ["lang"]}, "Add it"),
        ({"lang": ["en"] * 4}, {"slices": ["long"]}, "Did you mean 'lang'?"),
        ({"x": [0.5] * 4}, {"slices": ["x"]}, "which holds decimal numbers"),
        ({}, {"cluster": "doc"}, "column 'doc'"),
        (
            {"p:yes": [r[0] for r in P], "p:no": [r[1] for r in P]},
            {"labels": ("yes", "no", "x")},
            "labels must be those of the probabilities",
        ),
        ({"cluster": ["x", "", "y", "z"]}, {}, "for every item or for none"),
    ],
)
def test_columns_are_refused(change, options, part):
    columns = {k: v for k, v in (COLUMNS | change).items() if v is not None}
    message = says(lambda: predictions_from_columns(columns, **options))
    assert part in message, message


class NAType:
    "No value, of which nothing can be asked: `pandas.NA` without pandas."

    def __eq__(self, other):
        return self

    __ne__ = __eq__
    __hash__ = object.__hash__

    def __bool__(self):
        raise TypeError("boolean value of NA is ambiguous")


NA = NAType()
UNUSUAL = [  # columns, options, words of the refusal
    ({"id": [], "label": [], "probabilities": []}, {}, "there must be an example; got none"),
    ({"id": [], "label": [], "p:yes": [], "p:no": []}, {}, "there must be an example"),
    (
        {"id": (i for i in IDS)},
        {},
        "column 'id' must be a sequence; got a generator. Pass a list.",
    ),
    ({"label": list}, {}, "column 'label' must be a sequence; got a type. Pass a list."),
    ({"tense": np.array(3)}, {}, "column 'tense' must be a sequence; got a ndarray"),
    (
        {"probabilities": [{"yes": 0.333, "no": 0.666}] * 4, "confidence": [0.666, None] * 2},
        {"normalize": True},
        "confidence must be a number; got None at index 1. Fill it in",
    ),
    (
        {"probabilities": [{"yes": 0.333, "no": 0.666}] * 4, "confidence": [True] * 4},
        {"normalize": True},
        "confidence must be a number; got True at index 0",
    ),
    (
        {"probabilities": [{"yes": True, "no": 0.005}] * 4},
        {"normalize": True},
        "must be a number; got True at index 0",
    ),
    (
        {"p:yes": ["0.5"] * 4, "p:no": ["0.5"] * 4},
        {"places": ["line 2", "line 3"]},
        "places must say where each row stands; got 2 for 4 rows. Give one text a row",
    ),
    ({}, {"places": []}, "places must say where each row stands; got 0 for 4 rows"),
    ({}, {"places": 5}, "places must be a sequence; got 5. Pass a list."),
    ({}, {"slices": 5}, "slices must be names of columns; got 5. Write slices=['language']."),
    ({}, {"slices": [["tense"]]}, "a column must be named by text; got ['tense']"),
    ({}, {"cluster": ["doc"]}, "a column must be named by text; got ['doc']"),
    ({}, {"where": 5}, "where must be a string"),
    (
        {0: [1] * 4},
        {},
        "column names must be text; got 0. In a data frame: frame.rename(columns=str).",
    ),
    (
        {"cluster": [["x"], np.ones(2), "y", "z"]},
        {},
        "cluster must be text or a whole number; got ['x'] at index 0",
    ),
    (
        {"cluster": ["x", NA, "y", "z"]},
        {},
        "every item or for none; got None at index 1",
    ),
    ({"model": [np.ones(2)] * 4}, {}, "model must be text or a whole number"),
    ({"model": ["x", np.ones(2)] * 2}, {}, "model must be the same in every row"),
    (
        {"samples": [5] * 4, "correct_samples": [1] * 4, "temperature": [{}] * 4},
        {},
        "every 'temperature' must be a finite number; got {} (index 0)",
    ),
    (
        {"samples": [5] * 4, "correct_samples": [1] * 4, "temperature": [np.ones(2)] * 4},
        {},
        "every 'temperature' must be a finite number; got array([1., 1.]) (index 0)",
    ),
    ({"tense": np.ones((4, 2))}, {}, "column 'tense' must be a sequence; got a ndarray"),
]


@pytest.mark.parametrize("change, options, part", UNUSUAL)
def test_unusual_columns_are_refused_in_one_line(change, options, part):
    columns = dict(COLUMNS)
    if "probabilities" in change or "p:yes" in change:
        del columns["prediction"]
    message = says(lambda: predictions_from_columns(columns | change, **options))
    assert part in message, message


def test_a_frame_with_numbers_as_names_is_read_as_the_refusal_says():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(COLUMNS | {7: ["en", "de"] * 2})
    assert "frame.rename(columns=str)" in says(lambda: predictions_from_columns(frame))
    arm = predictions_from_columns(frame.rename(columns=str), slices=["7"])
    assert arm.slices == {"7": ("en", "de") * 2}
    for names in (range(4), ["id", "label", "prediction", 7]):
        frame.columns = list(names)
        assert "column names must be text" in says(lambda: predictions_from_columns(frame))


def test_unusual_cells_of_a_slice_are_missing_or_no_slice():
    gaps = {"lang": ["en", NA, decimal.Decimal("sNaN"), "en"]}
    assert predictions_from_columns(COLUMNS | gaps, slices=["lang"]).slices["lang"] == (
        "en",
        None,
        None,
        "en",
    )
    arrays = {
        "prompted": [np.ones(2)] * 4,
        "meta": [{}, {"by": 1}] * 2,
        "p_large": [10**400, [], {}, "x"],
    }
    arm = predictions_from_columns(COLUMNS | arrays)
    assert arm.slices == {} and arm.provenance["ignored"] == {
        "prompted": "holds nested values",
        "meta": "holds nested values, such as meta.by",
        "p_large": "holds nested values",
    }


CELLS = st.sampled_from(
    [
        *(None, True, 0, 1, -1, 0.5, 0.333, 0.666, float("nan"), float("inf"), 10**400),
        *("yes", "no", "", "0.5", "1e999", "a\ud800", b"yes", [], [0.5, 0.5], (0.5, 0.5), {}),
        *({"yes": 0.5, "no": 0.5}, {"yes": 0.333, "no": 0.666}, {"yes": None, "no": "1"}),
        *(decimal.Decimal("0.5"), decimal.Decimal("sNaN"), complex(1), np.float32(0.3)),
        *(np.int64(1), np.bool_(True), np.str_("yes"), np.datetime64("NaT"), np.ones(2)),
        *(np.float64("nan"), np.ones(0), NA, set(), object, range(2)),
    ]
)
NAMES = st.sampled_from(
    [
        *("id", "label", "prediction", "confidence", "probabilities", "samples", "cluster"),
        *("correct_samples", "prompt", "prompt_digest", "model", "tokenizer", "temperature"),
        *("p:yes", "p:no", "p_yes", "p_no", "language", "topic", 0, None, ("a", "b")),
    ]
)
USUAL = [
    *(IDS, LABEL, SAID, [0.5] * 4, [0.333] * 4, [0.666] * 4, [1, 2, 3, 4], ["0.5"] * 4),
    *([{"yes": 0.333, "no": 0.666}] * 4, [[0.333, 0.666]] * 4, [{"yes": "1", "no": "0"}] * 4),
]


@st.composite
def unusual_columns(draw):
    "Columns of which some are no columns, some cells no cells, and some lengths differ."
    usual = draw(st.sampled_from(USUAL))
    cells = list(draw(st.sampled_from([usual, usual[:3], [], [*usual, "e"]])))
    for _ in range(draw(st.integers(0, 2))):
        if cells:
            cells[draw(st.integers(0, len(cells) - 1))] = draw(CELLS)
    as_objects = np.empty(len(cells), object)
    as_objects[:] = cells
    return draw(
        st.sampled_from([cells, cells, cells, tuple(cells), as_objects, set, None, 5, "yesn"])
        | st.builds(iter, st.just(cells))
    )


@settings(max_examples=400, deadline=None)
@given(
    st.dictionaries(NAMES, unusual_columns(), max_size=3),
    st.sampled_from([None, "prediction", "id", "label"]),
    st.fixed_dictionaries(
        {},
        optional={
            "normalize": st.just(True),
            "labels": st.sampled_from([("yes", "no"), [], None, 5, "yn", [None, 1]]),
            "places": st.sampled_from([["r"] * 3, ["r"] * 4, [], 5, "abcd", range(4)]),
            "slices": st.sampled_from(["topic", ["id", 5], 5, [None], [["a"]], b"a", {}]),
            "cluster": st.sampled_from(["topic", "id", "", 5, ["topic"], b"a"]),
        },
    ),
)
def test_all_that_is_passed_as_columns_is_read_or_refused_in_one_line(change, gone, options):
    columns = {name: cells for name, cells in (COLUMNS | change).items() if name != gone}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            arm = predictions_from_columns(columns, **options)
        except ContractError as error:
            assert "\n" not in str(error)
        else:
            assert len(arm) == 4


def test_rows_of_few_digits_are_divided_by_their_sum_only_when_asked():
    thirds = {f"p:{name}": [0.333] * 4 for name in ("yes", "no", "so")}
    columns = {
        "id": IDS,
        "label": LABEL,
        "prediction": ["no"] * 4,
        "confidence": [0.333] * 4,
        **thirds,
    }
    assert "six digits" in says(lambda: predictions_from_columns(columns))
    arm = predictions_from_columns(columns, normalize=True)
    assert (
        np.abs(arm.probabilities - 1 / 3).max() < 1e-15
        and (arm.confidence == arm.probabilities[:, 0]).all()
        and arm.provenance == {"normalized": 4}
    )
    gone = columns | {"p:so": [0.1] * 4, "p:no": [0.333] * 4}
    assert "A label is missing" in says(lambda: predictions_from_columns(gone, normalize=True))
    half = np.float16([1 / 3] * 4)
    assert (
        predictions_from_columns(
            columns | {f"p:{n}": half for n in ("yes", "no", "so")} | {"confidence": half},
            normalize=True,
        ).provenance["normalized"]
        == 4
    )


# --- files ----------------------------------------------------------------------------------------------------------------------------
def test_every_format_says_the_same(tmp_path):
    columns = {
        "id": ["1", "2", "3", "4"],
        "label": LABEL,
        "p:yes": [r[0] for r in P],
        "p:no": [r[1] for r in P],
        "language": ["en", "en", "de", "de"],
    }
    rows = [
        dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)
    ]
    (tmp_path / "x.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (tmp_path / "x.json").write_text(
        json.dumps(
            [
                {
                    **{k: v for k, v in row.items() if ":" not in k},
                    "probabilities": {"yes": row["p:yes"], "no": row["p:no"]},
                }
                for row in rows[::-1]
            ]
        )
    )
    (tmp_path / "x.csv").write_text(
        "\n".join(
            ",".join(map(str, row)) for row in [columns, *zip(*columns.values(), strict=True)]
        )
        + "\n"
    )
    (tmp_path / "x.tsv").write_text((tmp_path / "x.csv").read_text().replace(",", "\t"))
    assert (
        len(
            {
                predictions_bytes(read_predictions(tmp_path / f"x.{suffix}"))
                for suffix in ("jsonl", "json", "csv", "tsv")
            }
        )
        == 1
    )
    (tmp_path / "x.csv").write_text((tmp_path / "x.csv").read_text().replace("0.8", "0.9"))
    assert (
        "x.csv: the probabilities of a row must add up to 1"
        in (message := says(lambda: read_predictions(tmp_path / "x.csv")))
        and "line 3" in message
    )


def test_kept_answers_come_back_and_edits_are_noticed(tmp_path):
    arm = Predictions(
        ids=IDS,
        label=LABEL,
        probabilities=P,
        labels=("yes", "no"),
        slices={"lang": ["en", "de", None, "en"]},
        clusters=list("xxyy"),
        samples=[3, None, 3, 3],
        correct_samples=[1, None, 0, 3],
        prompt_digests=list("1234"),
        model="m",
        provenance={"checkpoint": "c"},
    )
    write_predictions(arm, tmp_path / "a.jsonl")
    back = read_predictions(tmp_path / "a.jsonl")
    assert (
        predictions_bytes(back) == predictions_bytes(arm)
        and back.clusters == arm.clusters
        and back.samples == arm.samples
        and back.data_id == arm.data_id
    )
    plain = Predictions(ids=IDS, label=LABEL, prediction=SAID)
    write_predictions(plain, tmp_path / "b.jsonl")
    assert (
        predictions_bytes(read_predictions(tmp_path / "b.jsonl")) == predictions_bytes(plain)
        and read_predictions(tmp_path / "b.jsonl").labels_from == "seen"
    )
    whole = (tmp_path / "a.jsonl").read_bytes()
    for i in [*range(60, len(whole), 13), len(whole) - 1]:
        (tmp_path / "a.jsonl").write_bytes(whole[:i] + bytes([whole[i] ^ 1]) + whole[i + 1 :])
        says(lambda: read_predictions(tmp_path / "a.jsonl"))
    with pytest.raises(ContractError, match="must end in .jsonl"):
        write_predictions(arm, tmp_path / "a.csv")


def test_kept_answers_have_their_clusters(tmp_path):
    write_predictions(
        Predictions(ids=IDS, label=LABEL, prediction=SAID, clusters=["x", "x", "y", "y"]),
        tmp_path / "a.jsonl",
    )
    assert read_predictions(tmp_path / "a.jsonl").clusters == ("x", "x", "y", "y")
    with pytest.raises(
        ContractError,
        match="kept answers have the clusters with which they were asked; got cluster='id'. Leave it out.",
    ):
        read_predictions(tmp_path / "a.jsonl", cluster="id")


def test_lists_of_probabilities_need_labels(tmp_path):
    rows = [
        {"id": i, "label": "yn"[i % 2], "probabilities": [0.25, 0.75] if i % 3 else [0.5, 0.5]}
        for i in range(6)
    ]
    file = tmp_path / "a.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    named = read_predictions(file, labels=["y", "n"])
    assert named.labels == ("y", "n") and named.probabilities.tolist() == [
        row["probabilities"] for row in rows
    ]
    for labels in (None, ["y", "n", "m"]):
        with pytest.raises(ContractError, match="lists of probabilities need labels"):
            read_predictions(file, labels=labels)
