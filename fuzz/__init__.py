"""Damaged files and nonsense on the command line, by the ten thousand: see README.md."""
