"""What the XGBoost hook costs: `xgboost.train` of 100 rounds on 20,000 x 30 rows on one core, with and without.

Every case runs in a separate process, in turns, so that a busy moment of the machine affects all alike. Next to the
time of `xgboost.train` stands what its thread computed, which a busy machine hardly changes, and the time with closing
the run.

    python benchmarks/training_xgboost.py
"""

from __future__ import annotations

import argparse
import statistics
import time

from common import header, in_fresh_process, line, scratch

ROWS, COLUMNS, SHAP_ROWS = 20_000, 30, 1_000
BOOSTING_ROUNDS, TURNS = 100, 7
EVERY_ROUND = {
    "metrics": ("metrics, every round", []),
    "importance": ("metrics and feature importance, every round", ["feature_importance"]),
    "trees": ("the same and trees", ["feature_importance", "trees"]),
    "predictions": ("the same and predictions and labels", ["feature_importance", "trees", "predictions", "labels"]),
}
AIMS = {"importance": "1.10x"}
SHAP = {"average": ["average_shap"], "full": ["average_shap", "full_shap"]}


def data():
    import numpy as np
    import xgboost as xgb

    rng = np.random.default_rng(0)
    x = rng.normal(size=(ROWS + ROWS // 4, COLUMNS)).astype(np.float32)
    y = (x[:, 0] + x[:, 1] * x[:, 2] + rng.normal(size=len(x)) > 0).astype(np.float32)
    return xgb.DMatrix(x[:ROWS], y[:ROWS]), xgb.DMatrix(x[ROWS:], y[ROWS:])


def hook_for(case: str, out_dir: str, training, validation):
    import tensortrial.hooks.xgboost as tt

    if case in SHAP:
        rows = training.slice(range(SHAP_ROWS))
        when = tt.SaveConfig(save_interval=10)
        return tt.Hook(out_dir, train_data=rows, include_collections=SHAP[case], save_config=when)
    _, collections = EVERY_ROUND[case]
    when = tt.SaveConfig(save_interval=1)
    return tt.Hook(out_dir, validation_data=validation, include_collections=collections, save_config=when)


def run_case(case: str, out_dir: str) -> None:
    """Train, and print the seconds that it took: by the clock, of this thread, and by the clock with closing."""
    import xgboost as xgb

    training, validation = data()
    parameters = {"objective": "binary:logistic", "nthread": 1}
    evals = [(training, "train"), (validation, "validation")]
    xgb.train(parameters, training, 5, evals=evals, verbose_eval=False)
    hook = None if case == "none" else hook_for(case, out_dir, training, validation)
    callbacks = [] if hook is None else [hook]
    begun, begun_thread = time.perf_counter(), time.thread_time()
    xgb.train(parameters, training, BOOSTING_ROUNDS, evals=evals, verbose_eval=False, callbacks=callbacks)
    trained, thread = time.perf_counter() - begun, time.thread_time() - begun_thread
    if hook is not None:
        hook.close()
    print(trained, thread, time.perf_counter() - begun)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--case")
    parser.add_argument("--out")
    arguments = parser.parse_args()
    if arguments.case:
        run_case(arguments.case, arguments.out)
        return
    header(f"Boosting: {BOOSTING_ROUNDS} rounds on {ROWS} x {COLUMNS}, times the same without a hook")
    bare, measured = [], {case: [] for case in (*EVERY_ROUND, *SHAP)}
    for _ in range(TURNS):
        bare.append(_measure("none"))
        for case, ratios in measured.items():
            ratios.append([with_hook / without for with_hook, without in zip(_measure(case), bare[-1], strict=True)])
    line("without a hook", f"{1e3 * statistics.median(each[0] for each in bare):.0f} ms")
    names = {case: what for case, (what, _) in EVERY_ROUND.items()}
    names |= {case: f"{' and '.join(SHAP[case])} of {SHAP_ROWS} rows, every 10 rounds" for case in SHAP}
    for case, what in names.items():
        clock, thread, closed = (statistics.median(column) for column in zip(*measured[case], strict=True))
        line(what, f"{clock:.2f}x (thread {thread:.2f}x, closed {closed:.2f}x)", AIMS.get(case, ""))


def _measure(case: str) -> list[float]:
    with scratch() as folder:
        printed = in_fresh_process(__file__, "--case", case, "--out", folder / "run")
    return [float(each) for each in printed.split()]


if __name__ == "__main__":
    main()
