"""Policy evaluation from logs."""
