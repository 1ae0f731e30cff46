"""The documentation: every example on every page runs, every link leads somewhere, and the site builds."""

from __future__ import annotations

import importlib.util
import re
import shlex
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

import pytest

import gpsarsa
from gpsarsa import cli

ROOT = Path(gpsarsa.__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
LANGUAGES = {"python", "bash", "text"}  # of which the first two are run

# What cannot run here. On the page a comment before the block says so: <!-- not run: the reason -->
NOT_RUN = {
    ("docs/howto/ray.md", "there is no cluster here"),
    ("docs/agent.md", "trains for a minute and films an episode"),
}


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    language: str
    options: str
    text: str
    line: int
    excuse: str | None

    @property
    def title(self):
        """The name of the file that it is to be saved as, where it has one."""
        found = re.search(r'title="([^"]+)"', self.options)
        return found and found[1]


FENCE = re.compile(
    r"(?:^<!-- not run: (?P<excuse>[^\n]+?) -->\n+)?"
    r"^(?P<indent> *)```(?P<language>\w*)(?P<options>[^\n`]*)\n(?P<text>.*?)^(?P=indent)```$",
    re.DOTALL | re.MULTILINE,
)


def name(page):
    return page.relative_to(ROOT).as_posix()


def blocks(page):
    text = page.read_text()
    for found in FENCE.finditer(text):
        line = text.count("\n", 0, found.start("text"))
        yield Block(found["language"], found["options"], found["text"], line, found["excuse"])


def runs(block):
    return block.language in ("python", "bash") and block.excuse is None


def commands(block):
    """The commands of a block, as lists of words."""
    for line in block.text.replace("\\\n", " ").split("\n"):
        if words := shlex.split(line, comments=True):
            yield words


def alike(printed, shown):
    """Whether a page shows what was printed: the same words, and numbers that are a tenth apart at most."""
    number = re.compile(r"-?\d+(?:\.\d+)?(?:e[-+]?\d+)?")
    same_words = number.sub("#", printed).split() == number.sub("#", shown).split()
    pairs = zip(number.findall(printed), number.findall(shown), strict=False)
    return same_words and all(
        abs(float(a) - float(b)) <= 0.1 * max(abs(float(a)), abs(float(b)), 0.1) for a, b in pairs
    )


def command_works(words):
    """Run a command of ours; of others see that what they ask for exists."""
    match words:
        case ["gpsarsa", *arguments]:
            return cli.main(arguments) == 0
        case ["make", target]:
            return re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE)
        case ["pip", "install", *wanted]:
            project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
            extras = {*project["optional-dependencies"], ""}
            found = [re.fullmatch(r"(?:\.|gpsarsa)(?:\[([a-z,]+)\])?", one) for one in wanted]
            return all(one and set((one[1] or "").split(",")) <= extras for one in found)
        case ["python" | ".venv/bin/python", "-m", module, *_]:
            where = ROOT / module.replace(".", "/")
            return where.with_suffix(".py").exists() or (where / "__main__.py").exists()
        case _:
            return False


@pytest.fixture
def desk(tmp_path, monkeypatch):
    """An empty folder to work in, whose modules can be imported, and are forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    known = set(sys.modules)
    yield tmp_path
    for module in set(sys.modules) - known:
        if str(getattr(sys.modules[module], "__file__", "") or "").startswith(str(tmp_path)):
            del sys.modules[module]
    if "ray" in sys.modules and sys.modules["ray"].is_initialized():
        sys.modules["ray"].shutdown()


@pytest.mark.parametrize("page", [page for page in PAGES if any(map(runs, blocks(page)))], ids=name)
def test_what_a_page_shows_works(page, desk, capsys):
    """Blocks of a page share their names and a folder, and run in order; ```text is what was printed."""
    names: dict[str, object] = {"__name__": "page"}
    saved, printed = set(), ""
    for block in blocks(page):
        if block.language == "text" and printed:
            assert alike(printed, block.text), f"{name(page)}: printed {printed!r}, shown {block.text!r}"
            printed = ""
        if not runs(block):
            continue
        capsys.readouterr()
        if block.language == "bash":
            for words in commands(block):
                assert command_works(words), f"{name(page)}: {shlex.join(words)}"
        elif block.title:
            (desk / block.title).write_text(block.text)
            saved.add(Path(block.title).stem)
        else:
            code = "\n" * block.line + block.text  # so that a traceback names the page's line
            exec(compile(code, page, "exec"), names)
        printed = capsys.readouterr().out
    assert saved <= set(sys.modules), f"{name(page)} imports nothing of what it saves"


def test_what_is_not_run_is_known():
    fenced = {page: list(blocks(page)) for page in PAGES}
    marked = {(name(page), block.excuse) for page in PAGES for block in fenced[page] if block.excuse}
    assert marked == NOT_RUN
    for page in PAGES:
        text, excused = page.read_text(), [block for block in fenced[page] if block.excuse]
        assert text.count("<!-- not run") == len(excused)
        assert text.count("\n```") == 2 * len(fenced[page])  # none was overlooked
        if page.parent != ROOT:
            assert {block.language for block in fenced[page]} <= LANGUAGES, name(page)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_and_pictures_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text()):
        assert (page.parent / target).exists(), f"{name(page)} refers to {target}"


@pytest.mark.skipif(
    not (importlib.util.find_spec("mkdocs") and importlib.util.find_spec("mkdocstrings")),
    reason="MkDocs is not installed: pip install 'gpsarsa[docs]'",
)
def test_the_site_builds_without_a_warning_and_needs_no_network(tmp_path):
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    made = {page.relative_to(tmp_path).as_posix(): page.read_text() for page in tmp_path.rglob("*.html")}
    for page in (ROOT / "docs").rglob("*.md"):
        assert page.relative_to(ROOT / "docs").with_suffix(".html").as_posix() in made
    for text in made.values():
        assert not re.search(r'src="(https?:)?//', text)
        assert not re.search(r'<link[^>]*href="(https?:)?//', text)
    assert not re.search(r"url\((https?:)?//", "".join(css.read_text() for css in tmp_path.rglob("*.css")))
    api = "".join(text for page, text in made.items() if page.startswith("api/"))
    package = ROOT / "src" / "gpsarsa"
    for path in package.rglob("*.py"):
        parts = path.relative_to(package).with_suffix("").parts
        if not parts[-1].startswith("_"):
            assert f'id="gpsarsa.{".".join(parts)}"' in api, f"no page documents {'.'.join(parts)}"
