"""The reading and writing of TensorBoard's event files, without TensorFlow and protobuf."""
