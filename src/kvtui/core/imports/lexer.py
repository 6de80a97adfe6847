"""Splits shell text into commands and words, so that values can be filled in; runs nothing."""

from __future__ import annotations

from dataclasses import dataclass, field

OPERATORS = ("&&", "||", ";;", "|&", ";", "|", "&", "\n", "(", ")")
REDIRECTIONS = ("<<<", "<<-", "<<", ">>", ">|", ">&", "<&", "&>>", "&>", "<>", ">", "<")

ANSI = {
    "n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v", "e": "\x1b",
    "\\": "\\", "'": "'", '"': '"',
}  # fmt: skip
"""Escapes inside `$'…'`."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Part of a word: literal text, or an expansion to fill in."""

    text: str
    kind: str = "text"
    """text | variable | unknown."""
    quoted: bool = False
    fallback: str | None = None
    """Shell text behind `:-`, where the expansion has one."""


@dataclass(slots=True)
class Token:
    """A word of a command, or an array assignment."""

    pieces: list[Piece] = field(default_factory=list)
    array: list[Token] | None = None
    """Elements of `NAME=( … )`."""

    @property
    def literal(self) -> str | None:
        """The word's text where nothing in it is to be filled in."""
        if all(piece.kind == "text" for piece in self.pieces) and self.array is None:
            return "".join(piece.text for piece in self.pieces)
        return None


@dataclass(slots=True)
class Command:
    """Words of one simple command, and the line that it begins on."""

    words: list[Token]
    line: int


class Lexer:
    """One pass over shell text."""

    def __init__(self, text: str) -> None:
        from_dos = text.count("\r\n") == text.count("\n")
        self.text = text.replace("\r\n", "\n") if from_dos else text
        self.at = 0
        self.heredocs: list[str] = []

    def commands(self) -> list[Command]:
        """All simple commands in order."""
        found: list[Command] = []
        words: list[Token] = []
        start = 0
        while self.at < len(self.text):
            self._space()
            if self.at >= len(self.text):
                break
            if not words:
                start = self.at
            operator = next((o for o in OPERATORS if self.text.startswith(o, self.at)), None)
            if operator == "\n" and words and self._goes_on():
                continue
            if operator is not None and not self._is_redirection():
                self.at += len(operator)
                if words:
                    found.append(Command(words, self._line(start)))
                    words = []
                if operator == "\n":
                    self._skip_heredocs()
                continue
            if self._is_redirection():
                self._redirection()
                continue
            words.append(self.word())
        if words:
            found.append(Command(words, self._line(start)))
        return found

    def _line(self, at: int) -> int:
        return self.text.count("\n", 0, at) + 1

    def _space(self) -> None:
        text = self.text
        while self.at < len(text):
            if text[self.at] in " \t":
                self.at += 1
            elif text.startswith("\\\n", self.at):
                self.at += 2
            elif text[self.at] == "#":
                end = text.find("\n", self.at)
                self.at = len(text) if end < 0 else end
            else:
                return

    def _goes_on(self) -> bool:
        """A pasted command whose next line begins with an option, the backslash lost."""
        rest = self.text[self.at + 1 :]
        stripped = rest.lstrip(" \t")
        if stripped.startswith("--") and len(stripped) > 2 and stripped[2:3].isalpha():
            self.at += 1
            return True
        return False

    def _is_redirection(self) -> bool:
        at = self.at
        while at < len(self.text) and self.text[at].isdigit():
            at += 1
        return any(self.text.startswith(r, at) for r in REDIRECTIONS)

    def _redirection(self) -> None:
        while self.text[self.at].isdigit():
            self.at += 1
        sign = next(r for r in REDIRECTIONS if self.text.startswith(r, self.at))
        self.at += len(sign)
        while self.at < len(self.text) and self.text[self.at] in " \t":
            self.at += 1
        if self.at < len(self.text) and self.text[self.at] not in "\n;|)":
            target = self.word().literal
            if sign in ("<<", "<<-") and target:
                self.heredocs.append(target)

    def _skip_heredocs(self) -> None:
        for end in self.heredocs:
            while self.at < len(self.text):
                stop = self.text.find("\n", self.at)
                line = self.text[self.at : len(self.text) if stop < 0 else stop]
                self.at = len(self.text) if stop < 0 else stop + 1
                if line.strip() == end:
                    break
        self.heredocs = []

    def word(self) -> Token:
        """The word at the present place."""
        token = Token()
        text = self.text
        while self.at < len(text):
            char = text[self.at]
            if char in " \t\n;|&<>)" or (char == "(" and not self._opens_array(token)):
                if char == "(" and not token.pieces:
                    self.at += 1
                break
            if char == "(":
                token.array = self._array()
            elif char == "'":
                self.at += 1
                token.pieces.append(Piece(self._until("'"), quoted=True))
            elif char == '"':
                self.at += 1
                self._double(token)
            elif char == "\\":
                self.at += 1
                if text.startswith("\n", self.at):
                    self.at += 1
                    continue
                token.pieces.append(Piece(text[self.at : self.at + 1], quoted=True))
                self.at += 1
            elif text.startswith("$'", self.at):
                self.at += 2
                token.pieces.append(Piece(self._ansi(), quoted=True))
            elif char in "$`":
                token.pieces.append(self._expansion(False))
            else:
                token.pieces.append(Piece(char))
                self.at += 1
        return token

    def _opens_array(self, token: Token) -> bool:
        name = token.literal or ""
        return name.endswith("=") and name.rstrip("+=").isidentifier()

    def _array(self) -> list[Token]:
        self.at += 1
        items: list[Token] = []
        while self.at < len(self.text):
            self._space()
            if self.text.startswith("\n", self.at):
                self.at += 1
            elif self.text.startswith(")", self.at):
                self.at += 1
                break
            elif self.at < len(self.text):
                before = self.at
                items.append(self.word())
                if self.at == before:
                    self.at += 1
                    items.pop()
        return items

    def _until(self, mark: str) -> str:
        end = self.text.find(mark, self.at)
        end = len(self.text) if end < 0 else end
        found = self.text[self.at : end]
        self.at = end + len(mark)
        return found

    def _double(self, token: Token) -> None:
        text = self.text
        token.pieces.append(Piece("", quoted=True))
        while self.at < len(text):
            char = text[self.at]
            if char == '"':
                self.at += 1
                return
            if char == "\\" and text[self.at + 1 : self.at + 2] in ('"', "\\", "$", "`", "\n"):
                escaped = text[self.at + 1]
                token.pieces.append(Piece("" if escaped == "\n" else escaped, quoted=True))
                self.at += 2
            elif char in "$`":
                token.pieces.append(self._expansion(True))
            else:
                token.pieces.append(Piece(char, quoted=True))
                self.at += 1

    def _ansi(self) -> str:
        out: list[str] = []
        text = self.text
        while self.at < len(text) and text[self.at] != "'":
            if text[self.at] != "\\":
                out.append(text[self.at])
                self.at += 1
                continue
            out.append(self._ansi_escape())
        self.at += 1
        return "".join(out)

    def _ansi_escape(self) -> str:
        self.at += 1
        char = self.text[self.at : self.at + 1]
        self.at += 1
        if char in ANSI:
            return ANSI[char]
        base, most = {"x": (16, 2), "u": (16, 4), "U": (16, 8)}.get(char, (8, 3))
        if base == 8:
            self.at -= 1
        start = self.at
        digits = "0123456789abcdefABCDEF" if base == 16 else "01234567"
        while self.at < len(self.text) and self.at - start < most:
            if self.text[self.at] not in digits:
                break
            self.at += 1
        number = self.text[start : self.at]
        if not number:
            return "\\" + char if base == 16 else "\\"
        code = int(number, base)
        return chr(code) if code < 0x110000 and not 0xD800 <= code < 0xE000 else ""

    def _expansion(self, quoted: bool) -> Piece:
        text = self.text
        if text[self.at] == "`":
            self.at += 1
            return Piece(f"`{self._until('`')}`", "unknown", quoted)
        if text.startswith("$(", self.at):
            return Piece(self._nested("(", ")"), "unknown", quoted)
        if text.startswith("${", self.at):
            return _braced(self._nested("{", "}"), quoted)
        start = self.at = self.at + 1
        while self.at < len(text) and (text[self.at].isalnum() or text[self.at] == "_"):
            self.at += 1
            if text[start].isdigit():
                break
        name = text[start : self.at]
        if name:
            return Piece(name, "variable", quoted)
        if text[self.at : self.at + 1] in ("@", "*", "#", "?", "$", "!"):
            self.at += 1
            return Piece(text[self.at - 1], "variable", quoted)
        return Piece("$", quoted=quoted)

    def _nested(self, opens: str, closes: str) -> str:
        """Text from `$` to the closing mark, which may hold quotes and more of its kind."""
        start, depth = self.at, 0
        self.at += 1
        while self.at < len(self.text):
            char = self.text[self.at]
            if char == "\\":
                self.at += 1
            elif char == "'" and opens == "(":
                self.at += 1
                self._until("'")
                continue
            elif char == opens:
                depth += 1
            elif char == closes:
                depth -= 1
                if depth == 0:
                    self.at += 1
                    break
            self.at += 1
        return self.text[start : self.at]


def _braced(source: str, quoted: bool) -> Piece:
    """`${NAME}`, `${NAME:-text}`, `${NAME[@]}` and their kin."""
    inner = source[2:-1] if source.endswith("}") else source[2:]
    end = 0
    while end < len(inner) and (inner[end].isalnum() or inner[end] == "_"):
        end += 1
    name, rest = inner[:end], inner[end:]
    if not name and rest[:1] in ("@", "*"):
        return Piece("@", "variable", quoted)
    if rest.startswith(("[@]", "[*]")):
        return Piece(name + "[@]", "variable", quoted)
    if not rest:
        return Piece(name, "variable", quoted)
    for sign in (":-", ":=", "-", "="):
        if rest.startswith(sign):
            return Piece(name, "variable", quoted, rest[len(sign) :])
    if rest.startswith((":?", "?")):
        return Piece(name, "variable", quoted)
    return Piece(source, "unknown", quoted)
