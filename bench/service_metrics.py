"""What a running tier service says of itself."""

from __future__ import annotations

import urllib.request
from dataclasses import dataclass
from typing import Self

from prometheus_client.parser import text_string_to_metric_families

from tiering.local.tier_stack import TierStack

__all__ = ["ServiceFigures"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceFigures:
    """Counts since the service's start.

    Attributes:
        regenerations: units of retired segments that were made.
        pulls, pulled_bytes: answered requests for a segment's log, and the bytes of the answers.
    """

    regenerations: int
    pulls: int
    pulled_bytes: int

    @classmethod
    def of(cls, tier: TierStack) -> Self:
        """Ask the tier's service."""
        request = urllib.request.Request(  # noqa: S310 - on loopback
            f"{tier.service_url}/metrics",
            headers={"Authorization": f"Bearer {tier.token_file.read_text().strip()}"},
        )
        with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310 - as above
            families = list(text_string_to_metric_families(answer.read().decode()))

        def total(name: str, **labels: str) -> int:
            samples = (s for f in families for s in f.samples if s.name == name)
            return int(sum(s.value for s in samples if labels.items() <= s.labels.items()))

        return cls(
            regenerations=total("onecopy_regeneration_seconds_count"),
            pulls=total("onecopy_requests_total", route="get_log"),
            pulled_bytes=total("onecopy_sent_bytes_total", route="get_log"),
        )

    def __sub__(self, earlier: ServiceFigures) -> ServiceFigures:
        """What came between two moments."""
        return ServiceFigures(
            regenerations=self.regenerations - earlier.regenerations,
            pulls=self.pulls - earlier.pulls,
            pulled_bytes=self.pulled_bytes - earlier.pulled_bytes,
        )
