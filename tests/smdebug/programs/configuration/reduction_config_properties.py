"""Read the fields of a reduction configuration."""

import smdebug.pytorch as smd

config = smd.ReductionConfig(reductions=["min"], abs_reductions=["max"], norms=["l1"], abs_norms=["l2"])
print(list(config.reductions), list(config.abs_reductions), list(config.norms), list(config.abs_norms))
print(config.save_raw_tensor)
