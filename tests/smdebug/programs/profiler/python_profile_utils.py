"""Read the names of the profiler's modes."""

from smdebug.profiler.python_profile_utils import PythonProfileModes

try:
    print(PythonProfileModes.TRAIN.name)
except Exception as error:
    print("raised", type(error).__name__)
