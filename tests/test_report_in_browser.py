"""The report page in a real headless Chromium: clicks, keys, widths, colours, and no word to the network."""

from __future__ import annotations

import base64
import dataclasses
import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from PIL import Image

from chromium import Browser, find_chromium
from hyper_rl.report.page import report_page
from hyper_rl.report.trajectories import FILE, VERSION
from hyper_rl.studies.store import StudyResult
from made_studies import linear, make_run, make_study, result
from test_report import ATTACK, small_study, with_names

CHROMIUM = find_chromium()
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine (Debian: apt install chromium)")
FIRST_PAINT = 1_000.0
"""Milliseconds from disk."""
PAINTED = """new Promise(done => new PerformanceObserver(list => {
    for (const entry of list.getEntriesByName("first-contentful-paint")) done(entry.startTime);
}).observe({type: "paint", buffered: true}))"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    assert CHROMIUM is not None
    started = Browser(CHROMIUM, tmp_path_factory.mktemp("chromium") / "profile")
    yield started
    started.close()


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "report.html"
    path.write_text(report_page([small_study()]))
    return path


@pytest.fixture(autouse=True)
def nothing_goes_wrong(browser: Browser) -> Iterator[None]:
    """After every test: no word on the console, and nothing asked for but pages from disk."""
    browser.events.clear()
    yield
    assert browser.complaints() == []
    assert [url for url in browser.requests() if not url.startswith("file:")] == []


def lines(browser: Browser, chart: str, method: str) -> int:
    return int(
        browser.run(f"document.querySelectorAll('[data-chart=\"{chart}\"] path.curve[data-key^={method}]').length")
    )


def test_it_is_painted_within_a_second(
    browser: Browser, page: Path, record_property: Callable[[str, object], None]
) -> None:
    browser.open(page)
    painted = browser.run(PAINTED)
    record_property("first_contentful_paint_ms", painted)
    print(f"first contentful paint after {painted:.0f} ms")
    assert painted < FIRST_PAINT
    assert len(browser.requests()) == 1, "the page itself and nothing else"


def test_a_method_is_switched_off_everywhere_and_on_again(browser: Browser, page: Path) -> None:
    browser.open(page)
    charts = ("beta-success", "curves-success", "curves-behaviour_success")
    assert [lines(browser, chart, "hyper") for chart in charts] == [1, 1, 1]
    button = "document.querySelector('[data-method=hyper]')"
    browser.click("[data-method=hyper]")
    assert browser.run(f"{button}.getAttribute('aria-pressed')") == "false"
    assert [lines(browser, chart, "hyper") for chart in charts] == [0, 0, 0]
    assert [lines(browser, chart, "decouple") for chart in charts] == [1, 1, 1]
    assert browser.run("document.querySelectorAll('.thumbs tbody tr').length") == 2
    pressed = "[...document.querySelectorAll('.legend [data-series^=hyper]')].map(b => b.getAttribute('aria-pressed'))"
    assert set(browser.run(pressed)) == {"false"}
    browser.run("document.querySelector('.legend [data-series^=hyper]').click()")
    assert [lines(browser, chart, "hyper") for chart in charts] == [1, 1, 1]


def test_a_beta_is_chosen_for_the_curves(browser: Browser, page: Path) -> None:
    browser.open(page)
    path = "document.querySelector('[data-chart=curves-success] path.curve[data-key^=hyper]').getAttribute('d')"
    before = browser.run(path)
    choose = "document.querySelector('[data-chart=curves-success] select')"
    browser.run(f"{choose}.value = '1.0'; {choose}.dispatchEvent(new Event('change'))")
    assert browser.run(path) != before


def test_values_by_pointer_and_by_keyboard(browser: Browser, page: Path) -> None:
    browser.open(page)
    plot = "document.querySelector('[data-chart=beta-success] svg.plot')"
    browser.run(f"{plot}.scrollIntoView({{block: 'center'}})")
    box = browser.run(f"(b => [b.left, b.top, b.width, b.height])({plot}.getBoundingClientRect())")
    browser.hover(box[0] + box[2] / 2, box[1] + box[3] / 2)
    told = browser.run("document.getElementById('tip').hidden ? '' : document.getElementById('tip').innerText")
    assert "β 0.1" in told and "Hyper" in told and "UCB-Q" in told and "[" in told
    browser.hover(2, 2)
    assert browser.run("document.getElementById('tip').hidden")
    browser.run(f"{plot}.focus()")
    browser.press("ArrowRight", 39)
    browser.press("ArrowLeft", 37)
    said = "document.getElementById('said').textContent"
    assert browser.run(said).startswith("β 0.1: ")
    browser.press("End", 35)
    assert browser.run(said).startswith("β 1: ")
    browser.press("Escape", 27)
    assert browser.run("document.getElementById('tip').hidden")


def test_the_large_heat_map_reads_cells(browser: Browser, page: Path) -> None:
    browser.open(page)
    browser.run("document.querySelector('.thumbs [data-map=\"0/0.01\"]').click()")
    assert browser.run("document.querySelector('.heat h4').textContent") == "UCB-Q, β = 0.01, seed 0"
    browser.run("document.querySelector('.field canvas').focus()")
    browser.press("ArrowUp", 38)
    assert browser.run("document.getElementById('said').textContent").startswith("row 15, column 15: ")
    browser.press("ArrowRight", 39)
    visits = small_study().select(method="curiosity", beta=0.01, seed=0)[0].visits
    assert visits is not None
    said = browser.run("document.getElementById('said').textContent")
    assert said == f"row 15, column 16: {visits[15 * 30 + 16]} visits"


def test_runs_are_searched_and_sorted(browser: Browser, page: Path) -> None:
    browser.open(page)
    rows = "[...document.querySelectorAll('#runs tbody tr')].map(r => [...r.cells].map(c => c.textContent))"
    assert len(browser.run(rows)) == 27
    search = "document.querySelector('#runs input')"
    browser.run(f"{search}.value = 'hyper β=0.1'; {search}.dispatchEvent(new Event('input'))")
    found = browser.run(rows)
    assert len(found) == 3 and {row[1] for row in found} == {"Hyper"} and {row[2] for row in found} == {"0.1"}
    head = "[...document.querySelectorAll('#runs th')].find(h => h.textContent === 'success')"
    browser.run(f"{head}.querySelector('button').focus()")
    browser.call(
        "Input.dispatchKeyEvent", type="keyDown", key="Enter", code="Enter", text="\r", windowsVirtualKeyCode=13
    )
    assert browser.run(f"{head}.getAttribute('aria-sort')") == "ascending"
    values = [float(row[4]) for row in browser.run(rows)]
    assert values == sorted(values)
    browser.run(f"{head}.querySelector('button').click()")
    assert [float(row[4]) for row in browser.run(rows)] == values[::-1]


def test_tables_and_quotes_open_on_demand(browser: Browser, page: Path) -> None:
    browser.open(page)
    browser.run("document.querySelector('[data-chart=beta-success] details').open = true")
    browser.run("new Promise(done => setTimeout(done, 100))")
    cells = browser.run("document.querySelectorAll('[data-chart=beta-success] details td').length")
    assert cells == 9, "three betas, three methods"
    claim = "document.querySelector('#claims tr[data-claim]')"
    assert browser.run(f"{claim}.querySelector('blockquote').checkVisibility()") is False
    browser.run(f"{claim}.querySelector('summary').click()")
    assert browser.run(f"{claim}.querySelector('blockquote').checkVisibility()") is True


@pytest.mark.parametrize("width", [390, 1440])
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_it_fits_and_follows_the_systems_colours(
    browser: Browser, page: Path, tmp_path: Path, width: int, dark: bool
) -> None:
    browser.open(page, width=width, height=844, dark=dark)
    assert browser.run("document.documentElement.scrollWidth") <= width, "nothing sticks out at the side"
    ground = browser.run("getComputedStyle(document.body).backgroundColor")
    assert (sum(int(part) for part in ground[4:-1].split(",")) < 200) == dark
    assert browser.screenshot(tmp_path / "page.png", whole=True).stat().st_size > 20_000
    for _ in range(2):  # auto, light, dark
        browser.run("document.getElementById('theme').click()")
    assert browser.run("getComputedStyle(document.body).backgroundColor") == "rgb(18, 22, 27)"
    browser.run("localStorage.clear()")


def test_it_prints(browser: Browser, page: Path) -> None:
    browser.open(page)
    browser.call("Emulation.setEmulatedMedia", media="print")
    assert not browser.run("document.querySelector('.bar').checkVisibility()")
    assert browser.run("document.querySelector('svg.plot').checkVisibility()")
    browser.call("Emulation.setEmulatedMedia", media="")
    assert len(browser.call("Page.printToPDF")["data"]) > 20_000


def test_the_command_is_copied(browser: Browser, page: Path) -> None:
    browser.open(page)
    browser.click(".copy")
    browser.run("new Promise(done => setTimeout(done, 200))")
    assert browser.run("document.querySelector('.copy').textContent") == "Copied"
    browser.run("document.querySelector('#runs input').focus()")
    browser.call("Input.dispatchKeyEvent", type="keyDown", key="v", commands=["paste"])
    assert browser.run("document.querySelector('#runs input').value") == "hyper-rl study figure-1"


def test_markup_in_names_is_shown_and_not_obeyed(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "attack.html"
    path.write_text(report_page([with_names(small_study("quick"), ATTACK)]))
    browser.open(path)
    assert browser.run("document.querySelector('h1').textContent") == ATTACK
    assert browser.run("document.querySelectorAll('img').length") == 0
    assert "NO VERDICTS" in browser.run("document.getElementById('quick').innerText")


def test_several_studies_share_a_page_and_one_may_be_empty(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "both.html"
    nothing = dataclasses.replace(make_study("bounded", []), missing=("Room-hyper",))
    path.write_text(report_page([small_study(), small_study("quick"), nothing]))
    browser.open(path)
    assert browser.run("document.querySelectorAll('section.study').length") == 3
    assert "Room-hyper" in browser.run("document.getElementById('missing').innerText")
    assert "figure-1 was run short" in browser.run("document.getElementById('quick').innerText")
    browser.click("[data-method=curiosity]")
    assert lines(browser, "beta-success", "curiosity") == 0 and lines(browser, "beta-success", "hyper") == 2
    assert browser.run("document.querySelector('#runs [role=status]').textContent") == "54 of 54 runs"


def maze_study(folder: Path) -> StudyResult:
    """Two methods at two betas on a maze, with paths of two steps: the second is the explorer's."""
    runs = [
        make_run("MediumMaze-Easy", method, beta, 0, result(0.5), task_options={})
        for method in ("decouple", "hyper")
        for beta in (0.1, 1.0)
    ]
    runs = [dataclasses.replace(run, group=f"{run.group}-{run.beta:g}") for run in runs]
    path = {"x": [150, 160, 170], "y": [150, 150, 160], "handover": 1, "goal": [650, 650], "reached": True, "steps": 2}
    stored = [
        {"group": run.group, "index": 0, "step": run.config.steps,
         "paths": [{**path, "length": 2 if run.config.method == "hyper" else None}]}
        for run in runs
    ]  # fmt: skip
    (folder / FILE).write_text(json.dumps({"version": VERSION, "runs": stored}))
    return dataclasses.replace(make_study("figure-6", runs), folder=folder)


def test_paths_through_a_maze_follow_the_buttons_and_the_beta(browser: Browser, tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text(report_page([maze_study(tmp_path)]))
    browser.open(tmp_path / "page.html")
    names = "[...document.querySelectorAll('.mazes h4')].map(one => one.textContent)"
    assert browser.run(names) == ["Decouple, β = 1, seed 0", "Hyper, β = 1, seed 0"]
    ways = "['task', 'explorer'].map(who => document.querySelectorAll(`.maze .way.${who}`).length)"
    assert browser.run(ways) == [2, 2]
    assert browser.run("document.querySelector('.maze .way.explorer').getAttribute('d')") == "M160 150L170 160"
    assert browser.run("document.querySelectorAll('.mazes li')[1].textContent") == "goal reached in 2 steps, L = 2"
    browser.click("[data-method=decouple]")
    browser.run("(s => { s.selectedIndex = 0; s.dispatchEvent(new Event('change')); })"
                "(document.querySelector('[data-pick=\"path-β\"]'))")  # fmt: skip
    assert browser.run(names) == ["Hyper, β = 0.1, seed 0"]
    browser.look(390, 844)
    assert browser.run("document.documentElement.scrollWidth") <= 390


def test_a_computed_study_has_tables_and_pictures(browser: Browser, tmp_path: Path) -> None:
    picture = io.BytesIO()
    Image.new("RGB", (8, 8)).save(picture, "PNG")
    (tmp_path / "figures").mkdir()
    (tmp_path / "figures" / "linear-beta.png").write_bytes(picture.getvalue())
    study = dataclasses.replace(linear(True), folder=tmp_path)
    page = report_page([study])
    assert base64.b64encode(picture.getvalue()).decode() in page
    (tmp_path / "page.html").write_text(page)
    browser.open(tmp_path / "page.html")
    assert browser.run("document.querySelector('img.drawn').naturalWidth") == 8
    titles = "[...document.querySelectorAll('[data-chart=table] h3')].map(one => one.textContent)"
    assert browser.run(titles) == ["V/V* over β", "Do the confidence bounds hold?", "Episodes needed"]
    assert browser.run("document.querySelector('#runs').hidden")
    assert "7" in browser.run("document.querySelector('.tiles b').textContent"), "claims reproduced"
