"""Compare two reduction configurations."""

import smdebug.pytorch as smd

print(smd.ReductionConfig(reductions=["min"]) == smd.ReductionConfig(reductions=["min"]))
print(smd.ReductionConfig(reductions=["min"]) == smd.ReductionConfig(norms=["l1"]))
