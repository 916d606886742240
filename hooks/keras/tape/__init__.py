"""Training loops of Keras models that use a GradientTape."""
