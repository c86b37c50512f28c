"""One resource that everybody shares: a bound over all, and who gives way when it is reached.

Nobody has a fixed part: one holder alone may use all of it. At the bound the holder with the most gives way, so each of
n holders can always have an n-th. A holder is a CURVE key, an address that the gateway passed, or else a connection.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Container, Hashable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class Worth(IntEnum):
    """How well a part is protected. Holders defend against each other only what they have USED."""

    ABANDONED = 0
    UNUSED = 1
    USED = 2


@dataclass(slots=True)
class Part:
    """What one holder has of a resource, in the resource's unit."""

    holder: object
    size: int
    worth: Worth


class FullError(Exception):
    """The resource is full, and its taker has no less than any other holder."""


class Share(Generic[K]):
    """The parts of one resource, longest untouched first. bound: in its unit, over all parts; 0: none."""

    def __init__(self, bound: int) -> None:
        self.bound, self.total = bound, 0
        self._parts: OrderedDict[K, Part] = OrderedDict()
        self._held: Counter[object] = Counter()

    def __contains__(self, key: K) -> bool:
        return key in self._parts

    def __iter__(self) -> Iterator[K]:
        return iter(self._parts)

    def set(self, key: K, holder: object, size: int = 1, worth: Worth = Worth.USED) -> None:
        """Record a part as touched now. Make room first, with `giver`."""
        self.drop(key)
        self._parts[key] = Part(holder, size, worth)
        self._held[holder] += size
        self.total += size

    def drop(self, key: K) -> None:
        """The part is free again, if there was one."""
        part = self._parts.pop(key, None)
        if part is not None:
            self.total -= part.size
            self._held[part.holder] -= part.size
            if not self._held[part.holder]:
                del self._held[part.holder]

    def giver(self, holder: object, size: int = 1, spared: Container[K] = ()) -> K | None:
        """The part to give up before `holder` can have `size` more; None: there is room.

        Least worth first, then of the holder with the most, then longest untouched. What others have used goes only
        while they hold more than `holder` then would. spared: parts that cannot be given up now. Raises FullError.
        """
        if not self.bound or self.total + size <= self.bound:
            return None
        fair = self._held[holder] + 2 * size
        able = [
            (part.worth, -self._held[part.holder], age, key)
            for age, (key, part) in enumerate(self._parts.items())
            if (part.worth < Worth.USED or self._held[part.holder] >= fair) and key not in spared
        ]
        if not able:
            raise FullError
        return min(able, key=lambda one: one[:3])[3]
