"""Results as Markdown and as one HTML page: no network, no script, light or dark as the reader's
system is."""

from html import escape

STYLE = """
:root { color-scheme: light dark; --ink: #1d2733; --faint: #5a6775; --line: #c9d1da; --good: #1a7f4b;
  --bad: #b3341f; --none: #5a6775; --paper: #fff; }
@media (prefers-color-scheme: dark) { :root { --ink: #e8edf2; --faint: #a2afbc; --line: #3b4652;
  --good: #52c98b; --bad: #ff8a70; --none: #a2afbc; --paper: #14191f; } }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); margin: 0; }
main { max-width: 76rem; margin: auto; padding: 1rem; }
.scroll { overflow-x: auto; } table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .875rem; }
th, td { padding: .25rem .6rem; border-bottom: 1px solid var(--line); text-align: right; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
svg { width: 100%; height: auto; min-width: 28rem; max-width: 44rem; } text { fill: var(--ink); font: 12px system-ui, sans-serif; }
.axis { stroke: var(--line); } .one { stroke: var(--faint); stroke-dasharray: 3 3; }
.gain { stroke: var(--good); fill: var(--good); } .loss { stroke: var(--bad); fill: var(--bad); }
.none { stroke: var(--none); fill: var(--none); } p.small { color: var(--faint); }
"""
LEFT, RIGHT, ROW, TOP = 250, 610, 24, 14


def markdown(head, rows):
    lines = ["| " + " | ".join(head) + " |", "| --- |" + " ---: |" * (len(head) - 1)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def html_table(head, rows):
    heading = "".join(f"<th scope=\"col\">{escape(cell)}</th>" for cell in head)
    lines = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>\n" for row in rows
    )
    return f"<div class=\"scroll\" tabindex=\"0\"><table><tr>{heading}</tr>\n{lines}</table></div>\n"


def whiskers(ratios):
    """A dot and its interval for each (name, middle, low, high, class); 1 is the baseline. Nothing
    where a table has no ratios (None)."""
    if ratios is None:
        return ""
    known = [value for _, *three, _ in ratios for value in three if value is not None]
    if not known:
        return "<p>No whole block of runs yet.</p>"
    lowest, highest = min([1.0, *known]), max([1.0, *known])
    span = (highest - lowest) or 0.1
    lowest, highest = lowest - 0.05 * span, highest + 0.05 * span

    def x(value):
        return LEFT + (RIGHT - LEFT) * (value - lowest) / (highest - lowest)

    bottom = TOP + ROW * len(ratios)
    parts = [f"<line class=\"one\" x1=\"{x(1):.1f}\" x2=\"{x(1):.1f}\" y1=\"0\" y2=\"{bottom}\"/>"]
    for i, (name, middle, low, high, kind) in enumerate(ratios):
        y = TOP + ROW * i
        parts.append(f"<text x=\"{LEFT - 8}\" y=\"{y + 4}\" text-anchor=\"end\">{escape(name)}</text>")
        if low is not None:
            parts.append(f"<line class=\"{kind}\" x1=\"{x(low):.1f}\" x2=\"{x(high):.1f}\" y1=\"{y}\" y2=\"{y}\" stroke-width=\"2\"/>")
        parts.append(f"<circle class=\"{kind}\" data-value=\"{middle:.4f}\" cx=\"{x(middle):.1f}\" cy=\"{y}\" r=\"4\"/>")
        parts.append(f"<text x=\"{RIGHT + 8}\" y=\"{y + 4}\">{middle:.2f}</text>")
    # The ends of the scale, unless 1 stands where they would.
    ends = [value for value in (lowest, highest) if abs(x(value) - x(1)) > 30]
    for value in [1.0, *ends]:
        parts.append(f"<text x=\"{x(value):.1f}\" y=\"{bottom + 14}\" text-anchor=\"middle\">{value:.2f}</text>")
    drawn = f"<svg viewBox=\"0 0 {RIGHT + 50} {bottom + 20}\" role=\"img\">{''.join(parts)}</svg>"
    return f"<div class=\"scroll\" tabindex=\"0\">{drawn}</div>\n"


def page(title, sections, origin):
    """`sections` are (heading, text, HTML); `origin` the lines that say how it was made."""
    body = "".join(
        f"<section><h2>{escape(heading)}</h2><p>{escape(text)}</p>\n{inner}</section>\n"
        for heading, text, inner in sections
    )
    made = "".join(f"<p class=\"small\">{escape(line)}</p>\n" for line in origin)
    return (
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
        "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">"
        f"<title>{escape(title)}</title><style>{STYLE}</style></head>\n"
        f"<body><main><h1>{escape(title)}</h1>\n{body}{made}</main></body></html>\n"
    )
