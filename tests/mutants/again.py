"""Keeps the mutants that survived a draw, so that they can be tried again: with slower tests, or with new ones."""
import json
import os

from draw import shown, sites


def keep(path, fates, texts, passed=()):
    """Writes the survivors among fates [(fate, file, site, test)], and the tests that all of them pass if they reach them."""
    kept = [{"file": name, "line": site.line, "change": shown(texts[name][0], site)}
            for fate, name, site, _ in fates if fate in ("LIVES", "NOT REACHED")]
    with open(path, "w") as f:
        json.dump({"passed": sorted(passed), "survivors": kept}, f, indent=1)


def passed(path, programs, sources):
    """Returns the names of the tests that need not run again. programs: {test: file}. All must run if a source is newer
    than the draw; a test must run if its program is newer."""
    drawn = os.path.getmtime(path)
    if any(os.path.getmtime(s) > drawn for s in sources):
        return set()
    with open(path) as f:
        tried = json.load(f)["passed"]
    return {t for t in tried if t in programs and os.path.getmtime(programs[t]) <= drawn}


def kept(path, texts, say):
    """Yields the kept mutants as (file, site). The code may have moved; a mutant whose line has changed is left out."""
    with open(path) as f:
        wanted = json.load(f)["survivors"]
    for one in wanted:
        text = texts[one["file"]][0] if one["file"] in texts else ""
        found = [s for s in sites(text) if shown(text, s) == one["change"]]
        if found:
            yield one["file"], min(found, key=lambda s: abs(s.line - one["line"]))
        else:
            say(f"{'GONE':18} {one['file']}:{one['line']}: {one['change']}")
