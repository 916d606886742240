"""Name norms in the JSON file as the documents do."""

import smdebug.pytorch as smd

from torch_job import trained_with, write_json

write_json({"reductions": "min,l1,abs_l2", "save_interval": "1"}, {"CollectionName": "weights"})
try:
    hook = smd.Hook.create_from_json_file("hook.json")
except Exception as error:
    print("refused", isinstance(error, ValueError))
    raise SystemExit(0) from error
print(sorted(trained_with(hook, 1).tensor("Linear_weight").reduction_values(0)))
