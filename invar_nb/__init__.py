"""Did an edit change my language model, by how much, and how sure can we be?

The names below are imported from their modules only when first used, so `import invar_nb` loads neither torch nor scipy."""
__version__ = "0.1.0"

_modules = {
    "foundations.refuse": ("ContractError", "PairingError", "UsageError"),
    "foundations.interval": ("Interval", "Fallback"),
    "statistics.totals": ("weighted_mean", "effective_sample_size", "UnitTotals"),
    "statistics.serial": ("jackknife_interval",),
    "statistics.bootstrap": ("bootstrap_interval",),
    "statistics.paired_test": ("TTest", "paired_t_test", "sign_flip_test"),
    "statistics.proportions": ("wilson_interval", "pass_at_k", "newcombe_interval", "fisher_exact",
                               "mcnemar"),
    "statistics.planning": ("n_for_power",),
    "statistics.multiplicity": ("holm", "benjamini_hochberg"),
    "arms.windows": ("Window", "plan_windows", "perplexity", "bits_per_byte"),
    "arms.window_losses": ("WindowLosses",),
    "arms.predictions": ("Predictions",),
    "arms.arm": ("Scores", "Translations"),
    "arms.pair": ("Pair", "pair", "pair_arrays"),
    "metrics.metric": ("Metric", "METRICS", "register_metric"),
    "comparison.difference": ("Difference",),
    "comparison.rows": ("Row",),
    "comparison.rules": ("Rules",),
    "comparison.study": ("Study", "compare", "evaluate", "study"),
    "comparison.verdict": ("Verdict",),
    "comparison.measured": ("sum_pair", "totals_difference"),
    "metrics.reliability": ("expected_calibration_error", "reliability_bins"),
    "metrics.calibration": ("calibration_error",),
    "metrics.smooth_calibration": ("smooth_calibration_error",),
    "metrics.brier": ("brier_score", "brier_decomposition"),
    "metrics.confusion": ("confusion_matrix", "precision_recall_f1"),
    "metrics.bleu": ("bleu", "corpus_bleu"),
    "files.losses": ("LossFile", "loss_writer", "losses_of", "open_losses", "read_losses",
                     "write_losses"),
    "files.predictions": ("read_predictions", "write_predictions", "predictions_from_columns"),
    "files.lm_eval": ("read_lm_eval",),
    "files.inspect_logs": ("read_inspect_log",),
    "files.llama_cpp": ("read_logit_arm", "read_logit_pair", "read_perplexity_log",
                        "read_perplexity_pair"),
    "files.plain_table": ("read_plain",),
    "files.sources": ("read_every_eval",),
    "models.load": ("load_model", "read_gguf"),
    "models.score": ("score_windows", "score_text"),
    "models.weights": ("compare_weights",),
    "models.together": ("score_together",),
    "models.questions": ("read_examples", "find_leaks", "answer_examples"),
    "models.servers": ("score_served",),
    "experiments.runs": ("ExperimentResult", "read_runs"),
    "experiments.improvement": ("MetricSpec", "HIGHER", "LOWER", "LINEAR", "LOG", "Evaluator",
                                "compare_runs", "judge_runs", "judge_many"),
    "experiments.runner": ("Hypothesis", "run_queue"),
    "report.report": ("Report", "report_of"),
    "shell.compare": ("compare_models",),
    "report.verify": ("verify",),
}
_module_of = {name: module for module, names in _modules.items() for name in names}
__all__ = sorted(_module_of)

def __getattr__(name):
    if name in _module_of:
        from importlib import import_module
        return getattr(import_module("." + _module_of[name], __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

def __dir__():
    return sorted([*globals(), *__all__])

class _Signatures:
    """What nbdev's documentation needs before it processes a page (settings.ini names it): signatures
    are drawn without running the page's checks, and what follows the lead in the first cell stays."""

    def __init__(self, nb):
        import re
        from execnb.nbio import mk_cell
        shown = {"export", "exports", "exporti", "default_exp"}
        for cell in nb.cells:
            if cell.cell_type == "code" and not shown & cell.directives_.keys() and "show_doc" not in cell.source:
                cell.directives_["eval:"] = ["false"]
        lead = re.match(r"(# [^\n]+\n+(?:> [^\n]+\n?)+)(.*)", nb.cells[0].source, re.S)
        if lead and lead[2].strip():
            nb.cells[0].source = lead[1].strip()
            nb.cells.insert(1, mk_cell(lead[2].strip(), "markdown"))
