"""The `filter` of Compute's lists: (labels.ray-cluster-name = lab) AND (status != TERMINATED)."""
import re

from cloud_server import Refused

TOKEN = re.compile(r"""\s*(?: (?P<paren>[()]) | (?P<op><=|>=|!=|[=<>:]) | "(?P<quoted>[^"]*)"
                          | (?P<word>[^\s()=!<>:"]+) )""", re.VERBOSE)


def bad(text):
    return Refused("invalid", f"Invalid value for field 'filter': '{text}'. Invalid list filter expression.")


def tokens_of(text):
    out, position = [], 0
    while text[position:].strip():
        found = TOKEN.match(text, position)
        if not found:
            raise bad(text)
        kind = found.lastgroup
        out.append((kind, found.group(kind)))
        position = found.end()
    return out


def value_at(item, path):
    """The value of `labels.x` or `scheduling.preemptible`; label keys have no dots. None: it has none."""
    for name in path.split("."):
        item = item.get(name) if isinstance(item, dict) else None
    return item


def shown(value):
    return {True: "true", False: "false"}.get(value, value) if isinstance(value, bool) else value


def compare(item, field, operator, wanted):
    value = shown(value_at(item, field))
    if operator == ":":
        if wanted == "*":
            return value is not None
        return value is not None and wanted.lower() in str(value).lower()
    if operator in ("eq", "ne"):  # a regular expression that fits all of it
        return (re.fullmatch(wanted, str(value if value is not None else "")) is not None) == (operator == "eq")
    if operator in ("=", "!="):
        # A star stands for the rest.
        pattern = ".*".join(re.escape(part) for part in wanted.split("*"))
        return (value is not None and re.fullmatch(pattern, str(value)) is not None) == (operator == "=")
    if value is None:
        return False
    left, right = (float(value), float(wanted)) if re.fullmatch(r"-?[\d.]+", wanted) else (str(value), wanted)
    return {"<": left < right, ">": left > right, "<=": left <= right, ">=": left >= right}[operator]


class Parser:
    def __init__(self, text):
        self.text, self.tokens = text, tokens_of(text)

    def peek(self):
        return self.tokens[0] if self.tokens else (None, None)

    def take(self):
        if not self.tokens:
            raise bad(self.text)
        return self.tokens.pop(0)

    def whole(self):
        out = self.any_of()
        if self.tokens:
            raise bad(self.text)
        return out

    def any_of(self):
        parts = [self.all_of()]
        while self.peek() == ("word", "OR"):
            self.take()
            parts.append(self.all_of())
        return lambda item: any(part(item) for part in parts)

    def all_of(self):
        """AND may be left out between parentheses."""
        parts = [self.one()]
        while self.peek()[0] and self.peek() not in (("word", "OR"), ("paren", ")")):
            if self.peek() == ("word", "AND"):
                self.take()
            parts.append(self.one())
        return lambda item: all(part(item) for part in parts)

    def one(self):
        kind, text = self.take()
        if (kind, text) == ("word", "NOT"):
            inner = self.one()
            return lambda item: not inner(item)
        if (kind, text) == ("paren", "("):
            inner = self.any_of()
            if self.take() != ("paren", ")"):
                raise bad(self.text)
            return inner
        op_kind, operator = self.take()
        if kind not in ("word", "quoted") or (op_kind != "op" and operator not in ("eq", "ne")):
            raise bad(self.text)
        value_kind, wanted = self.take()
        if value_kind not in ("word", "quoted"):
            raise bad(self.text)
        return lambda item: compare(item, text, operator, wanted)


def matcher(text):
    """item -> whether it is asked for."""
    return Parser(text).whole() if text else lambda item: True
