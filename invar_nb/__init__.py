"""Did an edit change my language model, by how much, and how sure can we be?

The names below are imported from their rooms only when first used, so `import invar_nb` loads neither torch nor scipy."""
__version__ = "0.1.0"

_rooms = {
    "foundations.numbers": ("ContractError", "PairingError"),
    "foundations.interval": ("Interval", "Fallback"),
    "statistics.weighted": ("weighted_mean", "effective_sample_size"),
    "statistics.bootstrap": ("BootstrapPlan",),
    "statistics.exact": ("bootstrap_interval",),
    "statistics.ttest": ("TTest", "paired_t_test", "sign_flip_test"),
    "statistics.proportion": ("wilson_interval", "pass_at_k"),
    "statistics.two_proportions": ("newcombe_interval", "fisher_exact", "mcnemar"),
    "statistics.multiplicity": ("holm", "benjamini_hochberg"),
    "probes.calibration": ("expected_calibration_error", "reliability_bins", "brier_score", "brier_decomposition"),
    "probes.confusion": ("confusion_matrix", "precision_recall_f1"),
    "probes.bleu": ("bleu", "corpus_bleu"),
    "probes.probes": ("Predictions",),
    "probes.evaluation": ("evaluate",),
    "probes.paired_probes": ("compare_predictions",),
    "evidence.windows": ("Window", "WindowLosses", "plan_windows", "perplexity", "bits_per_byte"),
    "evidence.paired": ("PairedWindows", "Comparison", "pair", "pair_arrays", "compare"),
    "evidence.verdict": ("MetricSpec", "Verdict", "judge"),
    "evidence.runs": ("ExperimentResult", "Evaluator", "Hypothesis", "compare_runs", "judge_runs", "judge_many", "run_queue"),
    "machine.scoring": ("score_windows", "score_text"),
    "machine.store": ("read_losses", "write_losses"),
    "statement.report": ("Report", "build_report", "check_report", "verify"),
}
_room_of = {name: room for room, names in _rooms.items() for name in names}
__all__ = sorted(_room_of)


def __getattr__(name):
    if name in _room_of:
        from importlib import import_module
        return getattr(import_module("." + _room_of[name], __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__():
    return sorted([*globals(), *__all__])
