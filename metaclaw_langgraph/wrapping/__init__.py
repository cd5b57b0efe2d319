"""Wrapping: how skills get into a graph's runs and trajectories out, without a trace."""
