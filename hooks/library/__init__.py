"""The parts that hooks, callbacks and loggers of several training libraries share."""
