"""Our two themes; every other theme of Textual works too, since only its variables are used."""

from __future__ import annotations

from textual.color import Color
from textual.theme import Theme

DARK = Theme(
    name="kvtui-dark",
    primary="#6cb6ff",
    secondary="#8b95a5",
    accent="#c297ff",
    success="#57c38a",
    warning="#e0b050",
    error="#f2716b",
    foreground="#d5dae2",
    background="#14171c",
    surface="#1a1e25",
    panel="#242a33",
    dark=True,
    variables={"border": "#5b87b8", "border-blurred": "#343c48"},
)

LIGHT = Theme(
    name="kvtui-light",
    primary="#1f64b4",
    secondary="#5d6878",
    accent="#7a3fc0",
    success="#1d7a46",
    warning="#8f6200",
    error="#b8302b",
    foreground="#20262e",
    background="#fbfbfa",
    surface="#f3f4f4",
    panel="#e4e7ea",
    dark=False,
    variables={"border": "#1f64b4", "border-blurred": "#c3c9d1"},
)

THEMES = (DARK, LIGHT)


def extra_variables(theme: Theme) -> dict[str, str]:
    """Variables of our own for any theme: the cursor row and quiet text.

    Textual's own muted text is a contrast colour with alpha, which spans can't blend.
    """
    if theme.name.startswith("ansi"):
        return {
            "kv-cursor": "ansi_blue",
            "kv-cursor-text": "ansi_bright_white",
            "kv-cursor-blurred": "ansi_default",
            "kv-quiet": "ansi_bright_black",
            "kv-cursor-quiet": "ansi_white",
        }
    background = Color.parse(theme.background or ("#121212" if theme.dark else "#efefef"))
    foreground = Color.parse(theme.foreground or ("#e0e0e0" if theme.dark else "#202020"))
    primary = Color.parse(theme.primary)
    cursor = background.blend(primary, 0.32 if theme.dark else 0.22)
    return {
        "kv-cursor-quiet": foreground.blend(cursor, 0.25).hex,
        "kv-cursor": cursor.hex,
        "kv-cursor-text": "#ffffff" if theme.dark else "#0d1116",
        "kv-cursor-blurred": background.blend(foreground, 0.1).hex,
        "kv-quiet": foreground.blend(background, 0.4 if theme.dark else 0.32).hex,
    }
