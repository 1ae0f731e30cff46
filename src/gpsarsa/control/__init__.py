"""Control: agents that choose their own actions."""
