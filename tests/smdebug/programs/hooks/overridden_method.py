"""Override a method of the hook other than forward_hook."""

import smdebug.pytorch as smd


class Earlier(smd.Hook):
    def forward_pre_hook(self, module, inputs):
        pass


try:
    Earlier("run")
    print("accepted")
except Exception:
    print("refused")
