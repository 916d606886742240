"""Boost trees on scikit-learn's breast-cancer data, and query the run for what they learned.

python examples/breast_cancer_xgboost.py
"""

from __future__ import annotations

import logging
import shutil
import sys

import tensortrial
from tensortrial import rules

OUT_DIR = "runs/breast_cancer"
ROUNDS = 101


def train(out_dir: str) -> None:
    import numpy as np
    import xgboost as xgb
    from sklearn.datasets import load_breast_cancer

    import tensortrial.hooks.xgboost as tt

    x, y = load_breast_cancer(return_X_y=True, as_frame=True)
    # One diagnosis of eight is wrong, as in life: trees that grow as they like learn that by heart.
    y = y.where(np.random.default_rng(0).random(len(y)) > 0.125, 1 - y)
    held_out = np.arange(len(x)) % 4 == 0
    training = xgb.DMatrix(x[~held_out], y[~held_out], nthread=1)
    validation = xgb.DMatrix(x[held_out], y[held_out], nthread=1)
    parameters = {"objective": "binary:logistic", "max_depth": 8, "eta": 0.2, "nthread": 1, "seed": 0}

    hook = tt.Hook(
        out_dir,
        include_collections=["feature_importance", "average_shap", "trees", "predictions", "labels"],
        save_config=tt.SaveConfig(save_interval=5),
        hyperparameters=parameters,
        train_data=training,
        validation_data=validation,
    )
    hook.get_collection("metrics").save_config = tt.SaveConfig(save_interval=1)
    xgb.train(
        parameters,
        training,
        ROUNDS,
        evals=[(training, "train"), (validation, "validation")],
        callbacks=[hook],
        verbose_eval=False,
    )
    hook.close()


METRICS = """
    select mode_step as round,
        round(max(value) filter (name = 'train-logloss'), 3) as train,
        round(max(value) filter (name = 'validation-logloss'), 3) as validation
    from scalars where name like '%-logloss' and mode_step % 20 = 0
    group by round order by round
"""

# Each feature's share of all gain so far, in %: where it began, where it ended.
TOOK_OVER = """
    with gain as (
        select mode_step as round, split_part(name, '/', 3) as feature,
            100 * value / sum(value) over (partition by mode_step) as share
        from scalars where name like 'feature_importance/total_gain/%'
    )
    select feature,
        coalesce(round(max(share) filter (round = 0), 1), 0) as round_0,
        coalesce(round(max(share) filter (round = 20), 1), 0) as round_20,
        coalesce(round(max(share) filter (round = 100), 1), 0) as round_100
    from gain group by feature order by round_100 desc limit 8
"""

SHAP = """
    select split_part(name, '/', 2) as feature, round(value, 2) as mean_abs_shap
    from scalars where name like 'average_shap/%' and mode_step = 100
    order by value desc limit 6
"""


def show(out_dir: str) -> None:
    trial = tensortrial.create_trial(out_dir)
    for title, query in (
        ("logloss", METRICS),
        ("which features took over: their shares of all gain, in %", TOOK_OVER),
        ("what moves the predictions at the end: mean |SHAP|", SHAP),
    ):
        print(f"-- {title}, by SQL: trial.sql(...)\n")
        print(trial.sql(query))

    print("-- what to worry about, by rule\n")
    logging.getLogger("tensortrial.rules").setLevel(logging.ERROR)
    for rule in (
        rules.FeatureImportanceOverweight(trial, threshold=0.3, tensor_regex="feature_importance/total_gain"),
        rules.TreeDepth(trial, depth=4),
        rules.Overfit(trial, ratio_threshold=0.5, patience=3),
    ):
        found = rules.invoke_rule(rule)
        print(f"{rule.rule_name}: {len(found)} times")
        for finding in found[:1]:
            print(f"    first at step {finding.step}: {finding.sentence}")


def main() -> int:
    shutil.rmtree(OUT_DIR, ignore_errors=True)
    train(OUT_DIR)
    show(OUT_DIR)
    print(f"\nThe run is in {OUT_DIR}. To see it in the browser: tensortrial page {OUT_DIR}")
    print("It needs the extras page and ui: pip install 'tensortrial[page,ui]'")
    return 0


if __name__ == "__main__":
    sys.exit(main())
