"""Make the profiler's parser of its configuration."""

from smdebug.profiler.profiler_config_parser import ProfilerConfigParser

try:
    print(type(ProfilerConfigParser()).__name__)
except Exception as error:
    print("raised", type(error).__name__)
