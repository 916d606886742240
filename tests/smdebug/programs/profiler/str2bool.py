"""Read a boolean of the command line, as training scripts do."""

from smdebug.profiler.utils import str2bool

print([str2bool(text) for text in ("true", "True", "yes", "1", "false", "no", "0")], str2bool(True))
