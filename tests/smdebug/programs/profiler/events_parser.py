"""Make a parser of the profiler's trace events."""

from smdebug.profiler.tf_profiler_parser import SMProfilerEvents

try:
    print(type(SMProfilerEvents()).__name__)
except Exception as error:
    print("raised", type(error).__name__)
