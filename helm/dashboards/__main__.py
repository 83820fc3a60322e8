"""Write every dashboard into the chart."""

from __future__ import annotations

from helm.dashboards.build import DIRECTORY, build


def main() -> None:
    """Write the files, and remove those of dashboards that are no more."""
    built = build()
    for path in DIRECTORY.glob("*.json"):
        if path.name not in built:
            path.unlink()
    for name, text in built.items():
        (DIRECTORY / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
