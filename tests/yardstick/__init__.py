"""LangGraph's own tests, run with every graph wrapped: the yardstick of transparency."""
