"""When and where to add pseudo-inputs, and what the recursion gains: `python -m studies`."""
