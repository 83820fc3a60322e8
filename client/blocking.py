"""Make methods that block out of coroutines: each call is written once, in the asynchronous class.

The coroutines run over a :class:`braid.client.http.BlockingSender`, which never suspends, so no event loop is needed,
and one that runs, as in a notebook, is not disturbed.
"""

from __future__ import annotations

import functools
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, cast

A = TypeVar("A")
A_co = TypeVar("A_co", covariant=True)
P = ParamSpec("P")
T = TypeVar("T")


class Blocking(Generic[A_co]):
    """An object whose methods run those of an asynchronous one."""

    def __init__(self, wrapped: A_co) -> None:
        self._wrapped = wrapped


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never suspends."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        return cast(T, done.value)
    coroutine.close()
    raise RuntimeError("a coroutine over a BlockingSender must not suspend")


def blocking(
    method: Callable[Concatenate[A, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Blocking[A], P], T]:
    """Return the method that runs a coroutine method."""

    @functools.wraps(method)
    def call(self: Blocking[A], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return run(method(self._wrapped, *args, **kwargs))

    return call


def blocking_iterator(
    method: Callable[Concatenate[A, P], AsyncIterator[T]],
) -> Callable[Concatenate[Blocking[A], P], Iterator[T]]:
    """Return the generator method that runs an asynchronous one."""

    @functools.wraps(method)
    def iterate(self: Blocking[A], /, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        items = cast("AsyncGenerator[T, None]", method(self._wrapped, *args, **kwargs))
        try:
            while True:
                try:
                    item = run(items.asend(None))
                except StopAsyncIteration:
                    return
                yield item
        finally:
            run(items.aclose())

    return iterate
