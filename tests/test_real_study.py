"The stored losses of real models: whole, small, and what the engine printed."

import json

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet as pq
import pytest

from invar_nb import page_data

DATA = page_data("real_study.json").parent
FACTS = json.loads(page_data("real_study.json").read_text("utf-8"))
TYPES = list(FACTS["models"])
TEXTS = list(FACTS["perplexity_and_sigma"])
LARGEST = 3_000_000  # bytes of all files together


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("name", TYPES)
def test_losses_give_the_perplexity_that_the_engine_printed(name, text):
    rows = pq.read_table(
        page_data("real_study.parquet"), filters=[("text", "=", text), ("type", "=", name)]
    )
    tokens = rows["tokens"].to_numpy()
    mean = (rows["log_loss"].to_numpy() * tokens).sum() / tokens.sum()
    printed, _ = FACTS["perplexity_and_sigma"][text][name]
    assert np.exp(mean) == pytest.approx(printed, abs=1e-4)


@pytest.mark.parametrize(
    "file, item",
    [
        ("real_study", ("text", "window")),
        ("real_pairs", ("id",)),
        ("real_documents", ("text", "document")),
    ],
)
def test_every_type_has_the_same_items(file, item):
    table = pq.read_table(page_data(f"{file}.parquet"))
    items = {
        name: table.filter(pa.compute.equal(table["type"], name)).select(item).to_pylist()
        for name in table["type"].unique().to_pylist()
    }
    assert items.keys() <= set(TYPES)
    assert all(rows == items["F16"] for rows in items.values())


def test_files_are_small_and_hold_no_text():
    files = sorted(DATA.glob("real_*"))
    assert sum(file.stat().st_size for file in files) < LARGEST
    for file in files:
        if file.suffix == ".parquet":
            table = pq.read_table(file)
            words = [
                column
                for column in table.column_names
                if pa.types.is_string(table.schema.field(column).type)
            ]
            longest = max(
                len(word) for column in words for word in table[column].unique().to_pylist()
            )
            assert longest < 60


def test_distances_are_none_from_oneself_and_positive_from_others():
    table = pq.read_table(page_data("real_study.parquet"))
    distance = table["kl_divergence"].to_numpy()
    is_baseline = np.array(table["type"].to_pylist()) == "F16"
    assert not distance[is_baseline].any()
    assert (distance[~is_baseline] > 0).all()
