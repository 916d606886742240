"""What all tests share: the object stores that `servers` starts."""

pytest_plugins = ["servers"]
