"""Load the test kit: a running service per session, and the guard that ends what a test started."""

pytest_plugins = ["tests.kit.fixtures"]
