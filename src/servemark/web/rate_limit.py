"""How many requests a client may make: a bucket that fills steadily, one a client, in bounded memory."""

from __future__ import annotations

import ipaddress
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

MAX_CLIENTS = 4096


def client_name(host: str) -> str:
    """Who is counted as one: an IPv4 address, a /64 of IPv6 (one machine has all of it), or what the server calls it."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host[:80]
    if address.version == 4:
        return host
    return str(ipaddress.ip_network((address, 64), strict=False))


@dataclass(slots=True)
class RateLimit:
    """`per_s` requests a second in the long run and `burst` at once. The client unseen for the longest is forgotten when
    there are too many: it then has a full bucket again."""

    per_s: float
    burst: float
    now: Callable[[], float] = time.monotonic
    _held: OrderedDict[str, tuple[float, float]] = field(default_factory=OrderedDict)

    def take(self, client: str, cost: float = 1.0) -> float:
        """0 when a request may go on, else the seconds to wait."""
        now = self.now()
        left, since = self._held.pop(client, (self.burst, now))
        left = min(self.burst, left + (now - since) * self.per_s)
        wait = 0.0 if left >= cost else (cost - left) / self.per_s
        self._held[client] = (left if wait else left - cost, now)
        if len(self._held) > MAX_CLIENTS:
            self._held.popitem(last=False)
        return wait
