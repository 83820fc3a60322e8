"""Load the test kit: a running service per session, and the guard that ends what a test started."""

from hypothesis import settings

pytest_plugins = ["tests.kit.fixtures"]

# how long an example takes says more about the machine than about the code
settings.register_profile("braid", deadline=None, print_blob=True)
settings.load_profile("braid")
