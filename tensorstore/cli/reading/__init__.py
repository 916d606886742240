"""Commands that read runs: one file a command."""
