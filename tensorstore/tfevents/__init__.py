"""TensorBoard's event files, read and written without TensorFlow and without the library of protobuf."""
