"""The hooks for TensorFlow sessions and estimators."""
