"""Charts as SVG: curves over one axis in panels, and a heat map. They follow the light or dark of whoever looks."""

from html import escape

COLOURS = ["#4269d0", "#efb118", "#ff725c", "#3ca951", "#a463f2", "#9c6b4e"]
STYLE = "<style>text{font:12px sans-serif;fill:#333}.line{stroke:#999}@media(prefers-color-scheme:dark){text{fill:#ddd}}</style>"
WIDE, HIGH, LEFT, TOP = 360, 220, 60, 50


def svg(width, height, parts):
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">'
    return "\n".join([head, STYLE, *parts, "</svg>", ""])


def text(x, y, what, anchor="middle", more=""):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" {more}>{escape(str(what))}</text>'


def curves(across, panels):
    """`panels`: title -> name of a curve -> points. A panel beside the other, all with the same curves."""
    names, parts = list(next(iter(panels.values()))), []
    for index, (title, lines) in enumerate(panels.items()):
        left, points = LEFT + index * (WIDE + LEFT), [point for line in lines.values() for point in line]
        right, top = max(x for x, _ in points) or 1, max(y for _, y in points) or 1
        parts.append(text(left + WIDE / 2, TOP - 15, title))
        for share in (0, 0.25, 0.5, 0.75, 1):
            y, x = TOP + HIGH * (1 - share), left + WIDE * share
            parts += [f'<path class="line" d="M{left} {y:.1f}h{WIDE}" opacity=".4"/>', text(left - 6, y + 4, f"{top * share:.3g}", "end")]
            parts.append(text(x, TOP + HIGH + 16, f"{right * share:.3g}"))
        parts.append(text(left + WIDE / 2, TOP + HIGH + 34, across))
        for colour, line in zip(COLOURS, lines.values()):
            at = [(left + WIDE * x / right, TOP + HIGH * (1 - y / top)) for x, y in sorted(line)]
            parts.append(f'<polyline fill="none" stroke="{colour}" stroke-width="2" points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in at)}"/>')
            parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in at]
    for index, (colour, name) in enumerate(zip(COLOURS, names)):
        x, y = LEFT + index * 200, TOP + HIGH + 60
        parts += [f'<rect x="{x}" y="{y - 10}" width="12" height="12" fill="{colour}"/>', text(x + 18, y, name, "start")]
    return svg(LEFT + len(panels) * (WIDE + LEFT), TOP + HIGH + 80, parts)


def heat(title, down, rows, columns, shares, texts):
    """A field for each row and column, darker the closer its share comes to 1."""
    wide, high, parts = 80, 36, [text(LEFT, 20, title, "start")]
    for column, name in enumerate(columns):
        parts.append(text(LEFT + 30 + (column + 0.5) * wide, TOP - 6, name))
    parts.append(text(LEFT + 20, TOP - 6, down, "end"))
    for row, name in enumerate(rows):
        y = TOP + row * high
        parts.append(text(LEFT + 20, y + high / 2 + 4, name, "end"))
        for column, share in enumerate(shares[row]):
            x, share = LEFT + 30 + column * wide, max(0, min(1, share))
            colour = f"hsl(220 60% {95 - 55 * share:.0f}%)"
            parts.append(f'<rect x="{x}" y="{y}" width="{wide - 2}" height="{high - 2}" fill="{colour}"/>')
            ink = "fill:#fff" if share > 0.5 else "fill:#222"
            parts.append(text(x + wide / 2, y + high / 2 + 4, texts[row][column], more=f'style="{ink}"'))
    return svg(LEFT + 50 + len(columns) * wide, TOP + len(rows) * high + 20, parts)
