"""Import the names of the analysis of profiles, and use none."""

from smdebug.profiler.algorithm_metrics_reader import LocalAlgorithmMetricsReader
from smdebug.profiler.system_metrics_reader import S3SystemMetricsReader

print("imported", S3SystemMetricsReader is not None, LocalAlgorithmMetricsReader is not None)
