"""What all tests share: the servers that `servers` starts."""

import pytest

pytest.register_assert_rewrite("conformance", "exporting")
pytest_plugins = ["servers"]
