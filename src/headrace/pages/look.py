"""How the pages look: colours, fonts, the theme of plots, the frames of pages, the style of tables."""

from __future__ import annotations

from typing import Any

OPERATOR_COLOURS = ("#3b7dd8", "#e07a3f", "#4aa588", "#7a5ea8", "#c9a227", "#c0506b", "#5f7f95", "#8a6d4b")
INK, SOFT, LINE, PAPER = "#1d2530", "#6b7685", "#e6e9ee", "#ffffff"
FONT = "Inter, system-ui, 'Segoe UI', 'DejaVu Sans', sans-serif"


def theme() -> Any:
    """Bokeh's theme for all plots."""
    from bokeh.themes import Theme

    plot = {
        "background_fill_color": PAPER,
        "border_fill_color": PAPER,
        "outline_line_color": None,
        "min_border": 4,
        "min_border_right": 18,
        "toolbar_location": None,
    }
    axis = {
        "axis_line_color": None,
        "major_tick_line_color": None,
        "minor_tick_line_color": None,
        "major_label_text_font": FONT,
        "major_label_text_font_size": "10px",
        "major_label_text_color": SOFT,
        "major_label_standoff": 4,
    }
    legend = {
        "label_text_font": FONT,
        "label_text_font_size": "10px",
        "label_text_color": SOFT,
        "border_line_color": None,
        "background_fill_alpha": 0,
        "glyph_width": 10,
        "glyph_height": 10,
        "spacing": 8,
        "padding": 0,
        "margin": 0,
        "label_standoff": 3,
        "orientation": "horizontal",
    }
    return Theme(
        json={"attrs": {"Plot": plot, "Axis": axis, "Grid": {"grid_line_color": LINE}, "Legend": legend}}
    )


_FRAME = """{% from macros import embed %}<!doctype html><html lang="en"><head><meta charset="utf-8">
<title>{{ title }}</title><link rel="icon" href="data:,">
{{ bokeh_css if bokeh_css }}{{ bokeh_js if bokeh_js }}
<style>
*{box-sizing:border-box}
body{margin:0;overflow-x:hidden;background:#f4f5f7;color:#1d2530;font:13px/1.35 FONT;
 font-variant-numeric:tabular-nums}
main{display:grid;gap:10px;padding:10px 14px 14px;grid-template-columns:repeat(12,1fr)}
section{background:#fff;border:1px solid #e6e9ee;border-radius:8px;padding:8px 10px 6px;display:flex;
 flex-direction:column;min-width:0}
h2{font-size:11px;font-weight:600;margin:0 0 2px;display:flex;gap:8px;align-items:baseline}
h2 small{font-weight:400;color:#6b7685;font-size:11px}
.plot{flex:1;min-height:0;position:relative}.plot>*{position:absolute;inset:0}
.s12{grid-column:span 12}.s8{grid-column:span 8}.s7{grid-column:span 7}.s6{grid-column:span 6}
.s5{grid-column:span 5}.s4{grid-column:span 4}.s3{grid-column:span 3}
.h232{height:232px}.h216{height:230px}.h150{height:160px}
@media(max-width:1100px){.s7,.s5,.s8,.s4{grid-column:span 12}.s3{grid-column:span 6}}
</style></head><body>{{ embed(roots.head) }}<main>MAIN</main>{{ plot_script | indent(4) }}</body></html>"""


def page(sections: str) -> Any:
    """The frame of a page around its sections, as a Jinja template."""
    from jinja2 import Template

    return Template(_FRAME.replace("FONT", FONT).replace("MAIN", sections))


def section(root: str, title: str, small: str, classes: str, *, plot: bool = True) -> str:
    """A card of the page that shows one root."""
    inner = "{{ embed(roots." + root + ") }}"
    body = f'<div class="plot">{inner}</div>' if plot else inner
    return f'<section class="{classes}"><h2>{title} <small>{small}</small></h2>{body}</section>'


TABLES = f"""
:host{{font:12px/1.35 {FONT};color:{INK};font-variant-numeric:tabular-nums;width:100%}}
.bk-clearfix{{width:100%}} a{{color:inherit;text-decoration:none}} a:hover{{text-decoration:underline}}
.head{{display:flex;flex-wrap:wrap;row-gap:6px;width:100%;box-sizing:border-box;align-items:stretch;background:#fff;
 border-bottom:1px solid {LINE};padding:8px 14px}}
.id{{margin-right:22px;white-space:nowrap}} .id b{{font-size:15px;letter-spacing:-.01em}}
.id div{{color:{SOFT};font-size:11px;margin-top:3px}}
.pill{{display:inline-block;padding:1px 7px;border-radius:9px;background:#e4f3e8;color:#26734a;
 font-size:11px; font-weight:600;margin-left:6px;vertical-align:1px}}
.pill.w{{background:#fdefd9;color:#8f5b0c}} .pill.e{{background:#fbe3e1;color:#a5302a}}
.pill.s{{background:#eef1f5;color:#44505f}}
.k{{padding:0 9px;white-space:nowrap;border-left:1px solid {LINE};min-width:64px}}
.k i{{font-style:normal;color:{SOFT};font-size:10.5px;display:block}}
.k b{{font-size:17px;font-weight:600;letter-spacing:-.02em}}
.k u{{text-decoration:none;color:{SOFT};font-size:11px;margin-left:2px}}
.tabs{{display:flex;gap:4px;padding:6px 14px 0;flex-wrap:wrap}}
.tabs a{{padding:3px 10px;border-radius:6px;background:#e9ecf1;color:#44505f;font-size:11.5px}}
.tabs a.on{{background:{INK};color:#fff}}
.limit{{margin:10px 14px 0;padding:7px 12px;border-radius:8px;background:#fff;border:1px solid {LINE};
 border-left:4px solid #3b7dd8;font-size:12.5px}}
.limit.bad{{border-left-color:#c0392b}} .limit.slow{{border-left-color:#f2a541}}
.limit.fine{{border-left-color:#4aa588}} .limit span{{color:{SOFT}}}
table{{border-collapse:collapse;width:100%;font-size:12px}}
th{{text-align:right;color:{SOFT};font-weight:500;font-size:10.5px;padding:3px 8px;
 border-bottom:1px solid {LINE}}}
td{{text-align:right;padding:4px 8px;border-bottom:1px solid #f1f3f5;white-space:nowrap}}
tr:last-child td{{border:0}} .l{{text-align:left!important}}
.sw{{display:inline-block;width:8px;height:8px;border-radius:2px;margin-right:6px}}
.tag{{background:#eef1f5;border-radius:4px;padding:0 5px;font-size:11px;color:#44505f}}
.tag.error{{background:#fbe3e1;color:#a5302a}} .tag.warning{{background:#fdefd9;color:#8f5b0c}}
.bar{{display:inline-block;width:70px;height:6px;border-radius:3px;background:#eef1f5;vertical-align:middle;
 margin-right:6px;overflow:hidden}} .bar s{{display:block;height:100%}}
.hint{{color:{SOFT};white-space:normal}}
.msg{{white-space:normal;text-align:left!important;overflow-wrap:anywhere}}
.none{{color:{SOFT};padding:8px}}
dl{{display:grid;grid-template-columns:max-content 1fr;gap:3px 14px;margin:4px 0}}
dt{{color:{SOFT}}} dd{{margin:0;overflow-wrap:anywhere}}
"""
