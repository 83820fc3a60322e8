"""Load the test kit: a running service per session, and the guard that ends what a test started."""

import signal

from hypothesis import settings

pytest_plugins = ["tests.kit.fixtures"]

# how long an example takes says more about the machine than about the code
settings.register_profile("braid", deadline=None, print_blob=True)
settings.load_profile("braid")

# a shell that runs the tests in the background has SIGINT ignored, and so would all that tests start and interrupt
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
