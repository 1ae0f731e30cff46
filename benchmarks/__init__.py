"""Ratios measured in one run: `python -m benchmarks`, or `make bench`."""
