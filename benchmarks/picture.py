"""The four tables as one picture."""

from __future__ import annotations

from matplotlib.figure import Figure

Results = dict[str, list[dict[str, float]]]


def draw(results: Results, path: str) -> None:
    figure = Figure(figsize=(13, 8.5), layout="constrained")
    panels = figure.subplots(2, 2)
    _steps(panels[0, 0], results["steps"])
    _batch(panels[0, 1], results["batch"])
    _stream(panels[1, 0], results["stream"])
    _growth(panels[1, 1], results["growth"])
    for axis in panels.flat:
        axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=110)


def _column(rows, name):
    return [row[name] for row in rows]


def _steps(axis, rows):
    for name, marker in (("update", "o"), ("observe", "s"), ("observe, exact growth", "^")):
        axis.plot(_column(rows, "M"), _column(rows, f"{name} / blas"), marker=marker, label=name)
    axis.axhline(1.0, color="0.5", linestyle="--", label="three bare BLAS calls")
    axis.set(xscale="log", ylim=0, xlabel="pseudo-inputs M", ylabel="time / BLAS", title="One transition")
    axis.set_xticks(_column(rows, "M"), [f"{row['M']:.0f}" for row in rows], minor=False)
    axis.minorticks_off()
    axis.legend(frameon=False)


def _batch(axis, rows):
    labels = [f"M = {row['M']:.0f}\n{'1 thread' if row['BLAS threads'] else 'all threads'}" for row in rows]
    places = range(len(rows))
    for shift, name in ((-0.18, "fit episodes / blas"), (0.18, "fit loose rows / blas")):
        bars = axis.bar([p + shift for p in places], _column(rows, name), 0.34, label=name.split(" / ")[0])
        axis.bar_label(bars, fmt="%.2f")
    axis.axhline(1.0, color="0.5", linestyle="--", label="bare dtrmm + dsyrk")
    axis.set_xticks(list(places), labels)
    axis.set(ylabel="time / BLAS", title="Batch fit of 20 000 transitions")
    axis.legend(frameon=False, loc="upper left")
    axis.margins(y=0.25)


def _stream(axis, rows):
    N = _column(rows, "N")
    axis.plot(N, _column(rows, "µs per update"), "o-", label="µs per update")
    axis.plot(N, _column(rows, "RSS gained MB"), "s-", label="resident memory gained (MB)")
    axis.set(
        xscale="log", ylim=0, xlabel="transitions seen", title="Streaming: flat in time and memory (M = 64)"
    )
    axis.legend(frameon=False)


def _growth(axis, rows):
    colours = {"exact": "C0", "frozen": "C1", "streaming": "C2"}
    for name in rows[0]:
        if name == "N":
            continue
        act, growth, _ = name.split()
        style = "-" if act == "add" else "--"
        axis.plot(
            _column(rows, "N"), _column(rows, name), style, marker="o", color=colours[growth], label=name[:-3]
        )
    axis.set(xscale="log", yscale="log", xlabel="transitions seen", ylabel="ms")
    axis.set_title("One pseudo-input more or less (M = 64)")
    axis.legend(frameon=False, fontsize=8, ncols=2)
