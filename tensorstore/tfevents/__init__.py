"""TensorBoard's event files, read and written without TensorFlow and without protobuf's library."""
