"The names of invar_nb, each from its module: type checkers read this file, and __init__.py too."

__version__: str

from .arms.arm import Scores as Scores
from .arms.arm import Translations as Translations
from .arms.pair import Pair as Pair
from .arms.pair import pair as pair
from .arms.pair import pair_arrays as pair_arrays
from .arms.predictions import Predictions as Predictions
from .arms.window_losses import WindowLosses as WindowLosses
from .arms.windows import (
    Window as Window,
)
from .arms.windows import (
    bits_per_byte as bits_per_byte,
)
from .arms.windows import (
    perplexity as perplexity,
)
from .arms.windows import (
    plan_windows as plan_windows,
)
from .comparison.claim import Verdict as Verdict
from .comparison.difference import Difference as Difference
from .comparison.measured import sum_pair as sum_pair
from .comparison.measured import totals_difference as totals_difference
from .comparison.rows import Row as Row
from .comparison.rules import Rules as Rules
from .comparison.study import (
    Study as Study,
)
from .comparison.study import (
    compare as compare,
)
from .comparison.study import (
    evaluate as evaluate,
)
from .comparison.study import (
    study as study,
)
from .files.answers import (
    predictions_from_columns as predictions_from_columns,
)
from .files.answers import (
    read_predictions as read_predictions,
)
from .files.answers import (
    write_predictions as write_predictions,
)
from .files.losses import (
    LossFile as LossFile,
)
from .files.losses import (
    loss_writer as loss_writer,
)
from .files.losses import (
    open_losses as open_losses,
)
from .files.losses import (
    read_losses as read_losses,
)
from .files.losses import (
    write_losses as write_losses,
)
from .foundations.interval import Fallback as Fallback
from .foundations.interval import Interval as Interval
from .foundations.page_data import page_data as page_data
from .foundations.page_style import page_style as page_style
from .foundations.refuse import (
    ContractError as ContractError,
)
from .foundations.refuse import (
    PairingError as PairingError,
)
from .foundations.refuse import (
    UsageError as UsageError,
)
from .metrics.bleu import bleu as bleu
from .metrics.bleu import corpus_bleu as corpus_bleu
from .metrics.brier import (
    brier_decomposition as brier_decomposition,
)
from .metrics.brier import (
    brier_score as brier_score,
)
from .metrics.calibration import calibration_error as calibration_error
from .metrics.confusion import (
    confusion_matrix as confusion_matrix,
)
from .metrics.confusion import (
    precision_recall_f1 as precision_recall_f1,
)
from .metrics.metric import (
    METRICS as METRICS,
)
from .metrics.metric import (
    Metric as Metric,
)
from .metrics.metric import (
    register_metric as register_metric,
)
from .metrics.reliability import (
    expected_calibration_error as expected_calibration_error,
)
from .metrics.reliability import (
    reliability_bins as reliability_bins,
)
from .metrics.smooth_calibration import smooth_calibration_error as smooth_calibration_error
from .models.demo_text import demo_documents as demo_documents
from .models.load import load_model as load_model
from .models.load import read_gguf as read_gguf
from .models.questions import (
    answer_examples as answer_examples,
)
from .models.questions import (
    find_leaks as find_leaks,
)
from .models.questions import (
    read_examples as read_examples,
)
from .models.score import score_text as score_text
from .models.score import score_windows as score_windows
from .models.servers import score_served as score_served
from .models.together import score_together as score_together
from .models.weights import compare_weights as compare_weights
from .readers.every_eval import read_every_eval as read_every_eval
from .readers.inspect_logs import read_inspect_log as read_inspect_log
from .readers.llama_cpp import (
    read_logit_arm as read_logit_arm,
)
from .readers.llama_cpp import (
    read_logit_pair as read_logit_pair,
)
from .readers.llama_cpp import (
    read_perplexity_log as read_perplexity_log,
)
from .readers.llama_cpp import (
    read_perplexity_pair as read_perplexity_pair,
)
from .readers.lm_eval import read_lm_eval as read_lm_eval
from .readers.named_columns import read_plain as read_plain
from .report.answer import result_html as result_html
from .report.card import verify_card as verify_card
from .report.plan import Plan as Plan
from .report.plan import plan_comparison as plan_comparison
from .report.report import Report as Report
from .report.report import report_of as report_of
from .report.verify import verify as verify
from .runs.evaluator import (
    HIGHER as HIGHER,
)
from .runs.evaluator import (
    LINEAR as LINEAR,
)
from .runs.evaluator import (
    LOG as LOG,
)
from .runs.evaluator import (
    LOWER as LOWER,
)
from .runs.evaluator import (
    Evaluator as Evaluator,
)
from .runs.evaluator import (
    MetricSpec as MetricSpec,
)
from .runs.evaluator import (
    RunsArm as RunsArm,
)
from .runs.evaluator import (
    compare_runs as compare_runs,
)
from .runs.evaluator import (
    judge_many as judge_many,
)
from .runs.evaluator import (
    judge_runs as judge_runs,
)
from .runs.run_all import run_all as run_all
from .runs.runs import ExperimentResult as ExperimentResult
from .runs.runs import ExperimentSpec as ExperimentSpec
from .runs.runs import read_runs as read_runs
from .runs.runs import write_runs as write_runs
from .shell.compare import compare_models as compare_models
from .shell.compare import read_tasks as read_tasks
from .shell.demo import (
    demo_model as demo_model,
)
from .shell.demo import (
    pruned_copy as pruned_copy,
)
from .shell.demo import (
    quantised_copy as quantised_copy,
)
from .statistics.bootstrap import bootstrap_interval as bootstrap_interval
from .statistics.multiplicity import benjamini_hochberg as benjamini_hochberg
from .statistics.multiplicity import holm as holm
from .statistics.paired_test import (
    TTest as TTest,
)
from .statistics.paired_test import (
    paired_t_test as paired_t_test,
)
from .statistics.paired_test import (
    sign_flip_test as sign_flip_test,
)
from .statistics.planning import Goal as Goal
from .statistics.planning import Pilot as Pilot
from .statistics.planning import n_for_power as n_for_power
from .statistics.proportions import (
    discordant_pairs as discordant_pairs,
)
from .statistics.proportions import (
    fisher_exact as fisher_exact,
)
from .statistics.proportions import (
    mcnemar as mcnemar,
)
from .statistics.proportions import (
    newcombe_interval as newcombe_interval,
)
from .statistics.proportions import (
    pass_at_k as pass_at_k,
)
from .statistics.proportions import (
    wilson_interval as wilson_interval,
)
from .statistics.serial import jackknife_interval as jackknife_interval
from .statistics.totals import (
    UnitTotals as UnitTotals,
)
from .statistics.totals import (
    effective_sample_size as effective_sample_size,
)
from .statistics.totals import (
    weighted_mean as weighted_mean,
)
