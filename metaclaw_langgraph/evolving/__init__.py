"""Evolving: from failures to skills, guarded, proven, and live in a new generation."""
