"""Properties here have no deadline per example: how busy the machine is says nothing about them."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("operators", deadline=None, print_blob=True)
settings.load_profile("operators")
