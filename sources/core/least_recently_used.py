"""A cache bounded by what its values weigh."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import Lock
from typing import Generic, TypeVar

T = TypeVar("T")


class LeastRecentlyUsed(Generic[T]):
    """A cache bounded by the sum of its values' weights; safe between threads."""

    def __init__(self, limit: int, weigh: Callable[[T], int]) -> None:
        self._limit = limit
        self._weigh = weigh
        self._values: OrderedDict[Hashable, T] = OrderedDict()
        self._weight = 0
        self._lock = Lock()
        self._making: dict[Hashable, Lock] = {}

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return the value of ``key``; when it is not kept, one thread makes it by ``make`` and others wait for it."""
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
                return self._values[key]
            making = self._making.setdefault(key, Lock())
        with making:
            with self._lock:
                if key in self._values:
                    return self._values[key]
            try:
                value = make()
                self._keep(key, value)
            finally:
                with self._lock:
                    self._making.pop(key, None)
            return value

    def _keep(self, key: Hashable, value: T) -> None:
        weight = self._weigh(value)
        with self._lock:
            if key not in self._values:
                self._values[key] = value
                self._weight += weight
            while self._weight > self._limit and len(self._values) > 1:
                self._weight -= self._weigh(self._values.popitem(last=False)[1])

    def discard(self, key: Hashable) -> None:
        """Forget the value of ``key``, if there is one."""
        with self._lock:
            if key in self._values:
                self._weight -= self._weigh(self._values.pop(key))

    def __len__(self) -> int:
        return len(self._values)
