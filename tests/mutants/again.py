"""Keeps the mutants that survived a draw, so that they can be tried again: with slower tests, or with new ones."""
import json

from draw import shown, sites


def keep(path, fates, texts):
    """Writes the survivors among fates [(fate, file, site, test)]."""
    kept = [{"file": name, "line": site.line, "change": shown(texts[name][0], site)}
            for fate, name, site, _ in fates if fate in ("LIVES", "NOT REACHED")]
    with open(path, "w") as f:
        json.dump(kept, f, indent=1)


def kept(path, texts, say):
    """Yields the kept mutants as (file, site). The code may have moved; a mutant whose line has changed is left out."""
    with open(path) as f:
        wanted = json.load(f)
    for one in wanted:
        text = texts[one["file"]][0] if one["file"] in texts else ""
        found = [s for s in sites(text) if shown(text, s) == one["change"]]
        if found:
            yield one["file"], min(found, key=lambda s: abs(s.line - one["line"]))
        else:
            say(f"{'GONE':18} {one['file']}:{one['line']}: {one['change']}")
