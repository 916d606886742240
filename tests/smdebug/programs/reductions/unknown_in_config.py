"""Configure a reduction that does not exist."""

import smdebug.pytorch as smd

for arguments in ({"reductions": ["harmonic"]}, {"norms": ["l3"]}, {"abs_reductions": ["harmonic"]}):
    try:
        smd.ReductionConfig(**arguments)
        print("accepted")
    except ValueError:
        print("refused")
