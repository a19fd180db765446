"""Finds the places in a C file where one small fault can be made. Comments, strings, messages, assertions and
declarations of types are not changed. A change never moves a line."""
import bisect
import random
import re
from collections import namedtuple

# A fault replaces text[start:end] by `new`.
Site = namedtuple("Site", "kind start end new line")

OTHER = {"+": "-", "-": "+", "*": "/", "/": "*", "%": "*", "<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=",
         "!=": "==", "&&": "||", "||": "&&", "<<": ">>", ">>": "<<", "&": "|", "|": "&", "^": "|", "+=": "-=",
         "-=": "+=", "*=": "/=", "/=": "*=", "|=": "&=", "&=": "|=", "true": "false", "false": "true"}
# In the sources, a binary operator has spaces on both sides; a pointer's star does not.
OPERATOR = re.compile(r"(?<=[\w)\]] )(\+|-|\*|/|%|<|<=|>|>=|==|!=|&&|\|\||<<|>>|&|\||\^|[-+*/|&]=)(?=[ \n])")
INTEGER = re.compile(r"(?<![\w.])(\d+|0x[0-9a-f]+)([uUlL]*)(?![\w.])")
REAL = re.compile(r"(?<![\w.])(\d+\.\d*(?:e[-+]?\d+)?|\d+e[-+]?\d+)(?![\w.])")
NO_CODE = re.compile(r"\b(?:assert|static_assert|_Static_assert|log_\w+)\(")
MESSAGE = re.compile(r"\b(?:diag_\w+|verify_report|[A-Z][A-Z_]+)\(")  # a missing call is a fault; another word in a message is not
ARRAY = re.compile(r"^\s*(?:static |const )*(?!return\b)\w+ \*?\w+\[$")
LEFT = re.compile(r"^\*?[A-Za-z_][\w.\[\]>()+-]*(?:->[\w.\[\]]+)* (?:[-+*/|&%]|<<|>>)?= ")
CALL = re.compile(r"^[A-Za-z_][\w.>\[\]-]*\(")
STEP = re.compile(r"^(?:\+\+|--)?[\w.>\[\]-]+(?:\+\+|--)?$")
COMMUTES = re.compile(r"\b(?:arena_array|fmin|fmax|gcd)$")  # the last two arguments may be exchanged
HEADERS = ("if", "for", "while", "switch")


def blank(text, start, end):
    return text[:start] + re.sub(r"[^\n]", " ", text[start:end]) + text[end:]


def closing(code, at):
    """Returns the index after the bracket that closes the one at `at`."""
    depth = 0
    for i in range(at, len(code)):
        if code[i] in "([{":
            depth += 1
        elif code[i] in ")]}":
            depth -= 1
            if depth == 0:
                return i + 1
    return len(code)


def blanked(text):
    """Returns the text with blanks instead of comments and preprocessor lines, and without the content of strings. Each character keeps its place."""
    pattern = r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|(?m:^[ \t]*#(?:\\\n|[^\n])*)'
    return re.sub(pattern, lambda m: re.sub(r"[^\n]", " ", m.group()) if m.group()[0] not in "\"'"
                  else "_" * len(m.group()), text, flags=re.S)


def code_of(text):
    """Returns blanked(text), also without all parts that no fault may change."""
    code = blanked(text)
    for m in list(NO_CODE.finditer(code)):
        code = blank(code, m.start(), closing(code, m.end() - 1))
    for m in list(MESSAGE.finditer(code)):
        code = blank(code, m.end(), closing(code, m.end() - 1) - 1)
    at, kept = 0, ""
    while (brace := code.find("{", at)) >= 0:  # braces of a body, of an initialiser or of an enumeration stay
        end = closing(code, brace)
        before = code[:brace].rstrip()
        is_enum = re.search(r"\benum(?: \w+)?$", before)
        whole = before.endswith((")", "=")) or is_enum
        kept += blank(code[at:brace], 0, brace - at)
        kept += code[brace:end] if whole else blank(code[brace:end], 0, end - brace)
        at = end
    return kept + blank(code[at:], 0, len(code) - at)


def in_function(text, line):
    """Returns False if the line belongs to a table or an enumeration outside functions."""
    code, at, here = blanked(text), 0, len(re.match(r"(?:.*\n){%d}" % (line - 1), text).group())
    while (brace := code.find("{", at)) >= 0:
        at = closing(code, brace)
        if code.rfind("\n", 0, brace) <= here < at:
            return code[:brace].rstrip().endswith(")")
    return False


def arguments(code, at):
    """Returns the spans of the arguments of a call whose bracket opens at `at`."""
    spans, start, depth, end = [], at + 1, 0, closing(code, at)
    for i in range(at + 1, end):
        if code[i] == "," and depth == 0 or i == end - 1:
            spans.append((start, i))
            start = i + 1
        depth += (code[i] in "([{") - (code[i] in ")]}")
    return spans


def statements(code):
    """Returns the spans of the expression statements, without their semicolons."""
    i, n = 0, len(code)
    while i < n:
        if code[i].isspace() or code[i] in "{};:":
            i += 1
            continue
        word = re.match(r"\w+", code[i:i + 40])
        word = word.group() if word else ""
        if word in HEADERS:
            i = closing(code, code.find("(", i))
            continue
        if word in ("else", "do"):
            i += len(word)
            continue
        if word in ("case", "default"):
            i = code.find(":", i) + 1
            continue
        start = i
        while i < n and code[i] not in ";{}":
            i = closing(code, i) if code[i] in "([" else i + 1
            if i < n and code[i] == "{" and code[:i].rstrip()[-1:] in "=)" and "=" in code[start:i]:
                i = closing(code, i)
        if i < n and code[i] == ";":
            yield start, i


def droppable(statement):
    plain = re.sub(r"\s+", " ", statement)
    if plain in ("break", "continue", "return") or LEFT.match(plain):
        return True
    return bool(CALL.match(plain) or (STEP.match(plain) and ("++" in plain or "--" in plain)))


def sites(text):
    """Returns all sites of a file, in order."""
    code, found = code_of(text), []
    starts = [m.start() for m in re.finditer(r"^", text, re.M)]

    def add(kind, start, end, new):
        found.append(Site(kind, start, end, new, bisect.bisect_right(starts, start)))
    for m in OPERATOR.finditer(code):
        add("operator", m.start(), m.end(), OTHER[m.group()])
    for m in re.finditer(r"\b(?:true|false)\b", code):
        add("constant", m.start(), m.end(), OTHER[m.group()])
    for m in re.finditer(r"(?<=[( ])!(?=[\w(])", code):
        add("condition", m.start(), m.end(), "")
    for m in INTEGER.finditer(code):
        if ARRAY.match(code[code.rfind("\n", 0, m.start()) + 1:m.start()]):
            continue
        value = int(m.group(1), 0)
        for new in {value + 1, max(value - 1, 0)} - {value}:
            add("constant", m.start(), m.end(), f"{new}{m.group(2)}")
    for m in REAL.finditer(code):
        add("constant", m.start(), m.end(), "1.0" if float(m.group()) == 0 else f"(2 * {m.group()})")
    for m in re.finditer(r"\bif \(", code):
        end = closing(code, m.end() - 1)
        if code[m.end()] != "!":
            add("condition", m.end() - 1, end, f"(!{text[m.end() - 1:end]})")
    for m in re.finditer(r"(?<=\w)\(", code):
        if re.search(r"\b(?:if|for|while|switch|return|sizeof)$", code[:m.start()][-8:]):
            continue
        spans = [s for s in arguments(code, m.start()) if code[s[0]:s[1]].strip()]
        pairs = list(zip(spans, spans[1:]))
        for a, b in pairs[:-1] if COMMUTES.search(code[:m.start()]) else pairs:
            first, second = text[a[0]:a[1]], text[b[0]:b[1]]
            if first.strip() != second.strip() and "\n" not in first + second:
                lead = " " if first.startswith(" ") else ""
                add("arguments", a[0], b[1], f"{lead}{second.strip()}, {first.strip()}")
    for start, end in statements(code):
        if droppable(code[start:end]):
            add("statement", start, end, "\n" * text.count("\n", start, end))
    return sorted(found, key=lambda s: (s.start, s.end, s.new))


def changed(text, site):
    return text[:site.start] + site.new + text[site.end:]


def shown(text, site):
    """Returns one line that describes the change."""
    old = " ".join(text[site.start:site.end].split())
    new = " ".join(site.new.split())
    start = text.rfind("\n", 0, site.start) + 1
    stop = text.find("\n", site.start)
    line = text[start:stop]
    if site.end > stop or not new:
        return f"{site.kind}: dropped `{old}`" if not new and len(old) > 1 else f"{site.kind}: `{old}` -> `{new}` in `{line.strip()}`"
    mark = site.start - start
    after = (line[:mark] + site.new + line[mark + site.end - site.start:]).strip()
    return f"{site.kind}: `{line.strip()}` -> `{after}`"


def order(texts, seed):
    """Draws from all sites of all files {name: text}, as (name, Site). It first draws a line, then one of its sites. So a
    line with many sites is not drawn more often."""
    lines = {}
    for name in sorted(texts):
        for site in sites(texts[name]):
            lines.setdefault((name, site.line), []).append(site)
    draw = random.Random(seed)
    keys = sorted(lines)
    for key in keys:
        draw.shuffle(lines[key])
    turn = 0
    while keys:
        draw.shuffle(keys)
        for name, line in keys:
            yield name, lines[name, line][turn]
        turn += 1
        keys = sorted(k for k in keys if len(lines[k]) > turn)


__all__ = ["Site", "changed", "order", "shown", "sites"]
