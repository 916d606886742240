"""Open a folder of system metrics, of which there are none."""

import os

from smdebug.profiler.system_metrics_reader import LocalSystemMetricsReader

os.makedirs("profile")
try:
    print(type(LocalSystemMetricsReader("profile")).__name__)
except Exception as error:
    print("raised", type(error).__name__)
