"""Small line charts side by side, as one SVG file that needs nothing to be seen."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from math import floor, log10
from pathlib import Path
from typing import Final

__all__ = ["Panel", "Series", "write_chart"]

_WIDTH: Final = 250
_HEIGHT: Final = 250
_LEFT: Final = 52
_RIGHT: Final = 14
_TOP: Final = 66
_BOTTOM: Final = 44
_GRID: Final = 4
_COLOURS: Final = ("#2563a8", "#c2571a", "#3f7d3a")
_DASHES: Final = ("", "6 4", "2 3")
_STYLE: Final = (
    "text{font:11px system-ui,sans-serif;fill:#333}.title{font-size:13px;font-weight:600}"
    ".grid{stroke:#ddd}.axis{stroke:#888}.line{fill:none;stroke-width:2}"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One line: a value for each place on the horizontal axis."""

    name: str
    values: Sequence[float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One chart; its vertical axis begins at nought."""

    title: str
    unit: str
    series: Sequence[Series]


def write_chart(
    path: Path, *, title: str, across: str, places: Sequence[str], panels: Sequence[Panel]
) -> None:
    """Write `panels` side by side; `places` are the horizontal axis's labels, `across` its name."""
    width, height = _WIDTH * len(panels), _HEIGHT + 24
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}"><style>{_STYLE}</style>',
        '<rect width="100%" height="100%" fill="#fff"/>',
        f'<text class="title" x="12" y="18">{escape(title)}</text>',
    ]
    for number, panel in enumerate(panels):
        parts.append(f'<g transform="translate({number * _WIDTH} 24)">')
        parts += _panel(panel, across, places)
        parts.append("</g>")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join([*parts, "</svg>\n"]))


def _panel(panel: Panel, across: str, places: Sequence[str]) -> Iterator[str]:
    top = _nice(max(value for series in panel.series for value in series.values))
    bottom, right = _HEIGHT - _BOTTOM, _WIDTH - _RIGHT
    yield f'<text class="title" x="12" y="16">{escape(panel.title)}, {escape(panel.unit)}</text>'
    for step in range(_GRID + 1):
        y = bottom - step * (bottom - _TOP) / _GRID
        kind = "grid" if step else "axis"
        yield f'<line class="{kind}" x1="{_LEFT}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"/>'
        label = f"{top * step / _GRID:g}"
        yield f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{label}</text>'
    xs = [_LEFT + (right - _LEFT) * (i + 0.5) / len(places) for i in range(len(places))]
    for x, place in zip(xs, places, strict=True):
        yield f'<text x="{x:.1f}" y="{bottom + 16}" text-anchor="middle">{escape(place)}</text>'
    middle = (_LEFT + right) / 2
    yield f'<text x="{middle}" y="{bottom + 34}" text-anchor="middle">{escape(across)}</text>'
    for number, series in enumerate(panel.series):
        ys = [bottom - value / top * (bottom - _TOP) for value in series.values]
        yield from _line(number, series.name, xs, ys)


def _line(number: int, name: str, xs: Sequence[float], ys: Sequence[float]) -> Iterator[str]:
    colour, dashes = _COLOURS[number], _DASHES[number]
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in zip(xs, ys, strict=True))
    stroke = f'stroke="{colour}" stroke-dasharray="{dashes}"'
    yield f'<polyline class="line" {stroke} points="{points}"/>'
    for x, y in zip(xs, ys, strict=True):
        yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{colour}"/>'
    at, y = 12 + number * 110, 36
    yield f'<line class="line" {stroke} x1="{at}" x2="{at + 22}" y1="{y}" y2="{y}"/>'
    yield f'<text x="{at + 28}" y="{y + 4}">{escape(name)}</text>'


def _nice(value: float) -> float:
    """The next of 1, 2, 4, 5, 8 times a power of ten: its quarters are short numbers."""
    if value <= 0:
        return 1.0
    power = 10.0 ** floor(log10(value))
    return next(step * power for step in (1, 2, 4, 5, 8, 10) if step * power >= value)
