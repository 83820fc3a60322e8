"""The console script: import the command line, and end without a traceback when Ctrl-C comes at any moment."""

from __future__ import annotations

import signal

_INTERRUPTED = 128 + signal.SIGINT


def main() -> None:
    """Run the command line; Ctrl-C during the imports and at the exit ends the process silently."""
    is_default = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if is_default:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from braid.api.cli.main import main as run

    try:
        if is_default:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        run()
    except KeyboardInterrupt:
        raise SystemExit(_INTERRUPTED) from None
    finally:
        if is_default:
            signal.signal(signal.SIGINT, signal.SIG_DFL)


if __name__ == "__main__":
    main()
