"""Open a folder that does not exist."""

from smdebug.trials import create_trial

try:
    create_trial("nowhere")
except Exception as error:
    print("raised", type(error).__name__)
