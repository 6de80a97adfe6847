"""Our two themes; every other theme of Textual works too, since only its variables are used."""

from __future__ import annotations

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


def extra_variables(variables: dict[str, str], *, ansi: bool, dark: bool) -> dict[str, str]:
    """Variables of our own for any theme: the look of the cursor row."""
    if ansi:
        return {"kv-cursor": "ansi_blue", "kv-cursor-text": "ansi_bright_white"}
    del variables
    return {
        "kv-cursor": "#2b4668" if dark else "#cfe1f7",
        "kv-cursor-text": "#ffffff" if dark else "#10151c",
    }
