"The names of invar_nb, each from its module: type checkers read this file, and __init__.py too."
__version__: str

from .foundations.refuse import (
    ContractError as ContractError, PairingError as PairingError, UsageError as UsageError)
from .foundations.interval import Interval as Interval, Fallback as Fallback
from .statistics.totals import (
    weighted_mean as weighted_mean, effective_sample_size as effective_sample_size,
    UnitTotals as UnitTotals)
from .statistics.serial import jackknife_interval as jackknife_interval
from .statistics.bootstrap import bootstrap_interval as bootstrap_interval
from .statistics.paired_test import (
    TTest as TTest, paired_t_test as paired_t_test, sign_flip_test as sign_flip_test)
from .statistics.proportions import (
    wilson_interval as wilson_interval, pass_at_k as pass_at_k,
    newcombe_interval as newcombe_interval, fisher_exact as fisher_exact, mcnemar as mcnemar,
    discordant_pairs as discordant_pairs)
from .statistics.planning import Pilot as Pilot, n_for_power as n_for_power
from .statistics.multiplicity import holm as holm, benjamini_hochberg as benjamini_hochberg
from .arms.windows import (
    Window as Window, plan_windows as plan_windows, perplexity as perplexity,
    bits_per_byte as bits_per_byte)
from .arms.window_losses import WindowLosses as WindowLosses
from .arms.predictions import Predictions as Predictions
from .arms.arm import Scores as Scores, Translations as Translations
from .arms.pair import Pair as Pair, pair as pair, pair_arrays as pair_arrays
from .metrics.metric import (
    Metric as Metric, METRICS as METRICS, register_metric as register_metric)
from .comparison.difference import Difference as Difference
from .comparison.rows import Row as Row
from .comparison.rules import Rules as Rules
from .comparison.study import (
    Study as Study, compare as compare, evaluate as evaluate, study as study)
from .comparison.verdict import Verdict as Verdict
from .comparison.measured import sum_pair as sum_pair, totals_difference as totals_difference
from .metrics.reliability import (
    expected_calibration_error as expected_calibration_error,
    reliability_bins as reliability_bins)
from .metrics.calibration import calibration_error as calibration_error
from .metrics.smooth_calibration import smooth_calibration_error as smooth_calibration_error
from .metrics.brier import (
    brier_score as brier_score, brier_decomposition as brier_decomposition)
from .metrics.confusion import (
    confusion_matrix as confusion_matrix, precision_recall_f1 as precision_recall_f1)
from .metrics.bleu import bleu as bleu, corpus_bleu as corpus_bleu
from .files.losses import (
    LossFile as LossFile, loss_writer as loss_writer, losses_of as losses_of,
    open_losses as open_losses, read_losses as read_losses, write_losses as write_losses)
from .files.predictions import (
    read_predictions as read_predictions, write_predictions as write_predictions,
    predictions_from_columns as predictions_from_columns)
from .files.lm_eval import read_lm_eval as read_lm_eval
from .files.inspect_logs import read_inspect_log as read_inspect_log
from .files.llama_cpp import (
    read_logit_arm as read_logit_arm, read_logit_pair as read_logit_pair,
    read_perplexity_log as read_perplexity_log, read_perplexity_pair as read_perplexity_pair)
from .files.plain_table import read_plain as read_plain
from .files.sources import read_every_eval as read_every_eval
from .models.load import load_model as load_model, read_gguf as read_gguf
from .models.score import score_windows as score_windows, score_text as score_text
from .models.weights import compare_weights as compare_weights
from .models.together import score_together as score_together
from .models.questions import (
    read_examples as read_examples, find_leaks as find_leaks,
    answer_examples as answer_examples)
from .models.servers import score_served as score_served
from .experiments.runs import ExperimentResult as ExperimentResult, read_runs as read_runs
from .experiments.improvement import (
    MetricSpec as MetricSpec, HIGHER as HIGHER, LOWER as LOWER, LINEAR as LINEAR, LOG as LOG,
    Evaluator as Evaluator, RunsArm as RunsArm, compare_runs as compare_runs, judge_runs as judge_runs,
    judge_many as judge_many)
from .experiments.runner import (
    ExperimentSpec as ExperimentSpec, Hypothesis as Hypothesis, judge_queue as judge_queue,
    over_seeds as over_seeds, run_all as run_all, run_queue as run_queue,
    write_runs as write_runs)
from .report.answer import result_html as result_html
from .report.plan import Goal as Goal, Plan as Plan, plan_comparison as plan_comparison
from .report.report import Report as Report, report_of as report_of
from .shell.compare import compare_models as compare_models
from .report.verify import verify as verify
from .models.demo_text import demo_documents as demo_documents
from .shell.demo import (
    demo_model as demo_model, pruned_copy as pruned_copy, quantised_copy as quantised_copy)
