"""Durations: ``INTERVAL '8' SECOND``, and ``8 SECONDS`` inside a window."""

from __future__ import annotations

from decimal import Decimal

from braid.session.sql.parsing.cursor import Cursor

MICROSECONDS = {
    "MICROSECOND": 1,
    "MILLISECOND": 1_000,
    "SECOND": 1_000_000,
    "MINUTE": 60_000_000,
    "HOUR": 3_600_000_000,
    "DAY": 86_400_000_000,
    "WEEK": 604_800_000_000,
}
_SHORT = {"US": "MICROSECOND", "MS": "MILLISECOND", "SEC": "SECOND", "MIN": "MINUTE", "HR": "HOUR", "H": "HOUR"}
MONTHS = {"MONTH": 1, "QUARTER": 3, "YEAR": 12}
MAX_MICROSECONDS = 36_525 * MICROSECONDS["DAY"]
MAX_MONTHS = 1_200


def parse_interval(cursor: Cursor) -> tuple[int, int]:
    """Read ``INTERVAL '1.5' HOUR`` and return ``(months, microseconds)``, one of which is zero.

    The amount may also be a number, and the unit may stand inside the quotes.
    """
    cursor.expect("INTERVAL")
    return _parse_amount(cursor)


def parse_duration(cursor: Cursor, noun: str) -> int:
    """Read an interval, or an amount with its unit, and return microseconds."""
    at = cursor.start
    if not cursor.at("INTERVAL") and cursor.kind not in ("number", "string"):
        raise cursor.unexpected(f"{noun}, such as 8 SECONDS or INTERVAL '8' SECOND")
    months, microseconds = parse_interval(cursor) if cursor.at("INTERVAL") else _parse_amount(cursor)
    if months:
        raise cursor.not_allowed(
            f"{noun.capitalize()} must have a fixed length; months and years vary. Write it in DAYS.", at
        )
    return microseconds


def _parse_amount(cursor: Cursor) -> tuple[int, int]:
    start = cursor.start
    sign = -1 if cursor.at("-") else 1
    if cursor.at("-", "+"):
        cursor.advance()
    if cursor.kind not in ("number", "string"):
        raise cursor.unexpected("an amount such as '8'")
    token = cursor.advance()
    amount, _, quoted_unit = token.text.strip().partition(" ")
    unit_at = token.start
    if quoted_unit:
        unit = quoted_unit.strip().upper()
    else:
        unit_at = cursor.start
        if not cursor.at_word():
            raise cursor.unexpected(f"a unit ({_units()})")
        unit = cursor.advance().text.upper()
    written = unit
    unit = unit if unit in MICROSECONDS or unit in MONTHS or unit in _SHORT else unit.removesuffix("S")
    unit = _SHORT.get(unit, unit)
    if unit not in MICROSECONDS and unit not in MONTHS:
        raise cursor.syntax_error(f"A unit must be one of {_units()}; got {written!r}.", unit_at)
    return _to_interval(cursor, sign * _read_amount(cursor, amount, token.start), unit, start)


def _units() -> str:
    return ", ".join([*MICROSECONDS, *MONTHS])


def _read_amount(cursor: Cursor, amount: str, at: int) -> Decimal:
    digits = amount.removeprefix("-").removeprefix("+")
    if not digits.replace(".", "", 1).isdecimal() or not digits.isascii() or len(digits) > 16:
        raise cursor.syntax_error(
            f"The amount of an interval must be a number such as '8' or '1.5'; got {amount!r}.", at
        )
    return Decimal(amount)


def _to_interval(cursor: Cursor, amount: Decimal, unit: str, at: int) -> tuple[int, int]:
    # exact: an amount of 16 digits times a unit of at most 12 fits the 28 digits of a Decimal
    limit = MAX_MONTHS if unit in MONTHS else MAX_MICROSECONDS
    total = amount * (MONTHS.get(unit) or MICROSECONDS[unit])
    if abs(total) > limit:
        raise cursor.not_allowed("An interval must be at most 100 years long.", at)
    if total != int(total):
        raise cursor.not_allowed(
            f"An interval must be a whole number of {'months' if unit in MONTHS else 'microseconds'}; got {total}.",
            at,
        )
    return (int(total), 0) if unit in MONTHS else (0, int(total))
