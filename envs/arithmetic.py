"""Exact evaluation of the arithmetic a model writes: integers, + - * / and parentheses. No `eval`, no floats, no powers."""

from __future__ import annotations

import re
from fractions import Fraction

MAX_CHARS = 120
"""Longer texts are refused before they are read; it also bounds the depth of the recursion."""

_TOKEN = re.compile(r"\s*(\d{1,9}|[-+*/()×÷])")


class NotArithmetic(ValueError):
    """The text is no expression over integers, + - * / ( ), or divides by zero."""


def evaluate(text: str) -> tuple[Fraction, list[int]]:
    """Value of the expression and the integers it uses, in order. Raises NotArithmetic."""
    if len(text) > MAX_CHARS:
        raise NotArithmetic(f"longer than {MAX_CHARS} characters")
    tokens = _tokenize(text.strip())
    parser = _Parser(tokens)
    value = parser.total()
    if parser.at < len(tokens):
        raise NotArithmetic(f"unexpected {tokens[parser.at]!r}")
    return value, [int(token) for token in tokens if token.isdecimal()]


def _tokenize(text: str) -> list[str]:
    tokens, at = [], 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise NotArithmetic(f"unexpected {text[at]!r}")
        tokens.append(match[1].replace("×", "*").replace("÷", "/"))
        at = match.end()
    return tokens


class _Parser:
    """Recursive descent: sum of products of factors."""

    def __init__(self, tokens: list[str]) -> None:
        self.tokens, self.at = tokens, 0

    def total(self) -> Fraction:
        value = self.product()
        while operator := self._take("+", "-"):
            right = self.product()
            value = value + right if operator == "+" else value - right
        return value

    def product(self) -> Fraction:
        value = self.factor()
        while operator := self._take("*", "/"):
            right = self.factor()
            if operator == "/" and right == 0:
                raise NotArithmetic("division by zero")
            value = value * right if operator == "*" else value / right
        return value

    def factor(self) -> Fraction:
        if self._take("-"):
            return -self.factor()
        if self._take("("):
            value = self.total()
            if not self._take(")"):
                raise NotArithmetic("a parenthesis is not closed")
            return value
        if self.at < len(self.tokens) and self.tokens[self.at].isdecimal():
            self.at += 1
            return Fraction(int(self.tokens[self.at - 1]))
        raise NotArithmetic("a number is missing")

    def _take(self, *wanted: str) -> str | None:
        if self.at < len(self.tokens) and self.tokens[self.at] in wanted:
            self.at += 1
            return self.tokens[self.at - 1]
        return None
