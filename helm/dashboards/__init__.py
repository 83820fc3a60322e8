"""The Grafana dashboards of the chart as code, with Grafana's own builders (`grafana-foundation-sdk`).

Run this after a change, and commit what it writes::

    python -m helm.dashboards

It writes ``helm/braid/dashboards/*.json``; a test compares the committed files with what is built.
"""
