"""List the collections that XGBoost's hook has from the beginning."""

import smdebug.xgboost as smd

print(sorted(smd.Hook("run").get_collections()))
