"""The base of the callbacks and loggers for training libraries: the hook that they hold, and its steps."""
